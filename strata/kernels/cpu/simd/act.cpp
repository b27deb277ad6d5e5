// Activations to 16 bits, in plain C++ that every compiler vectorises and that gives
// the same bits everywhere: the maximum is taken of the bit patterns, and adding
// 1.5 * 2^23 rounds to the nearest integer, ties to even.
#include "layout.h"
#include "simd/matmul.h"

namespace strata::STRATA_ISA {

namespace {

constexpr float kRound = 12582912.0f;
constexpr float kMost = 32512.0f;  // 256 * 127: the coarse byte is 127 at most
// Below this kMost / max would overflow; such a block counts as zeros.
constexpr float kTiny = 1e-30f;

template <int n>
inline float max_abs(const float* x) {
  int32_t bits[n], most = 0;
  std::memcpy(bits, x, sizeof bits);
  for (int i = 0; i < n; ++i) {
    const int32_t magnitude = bits[i] & 0x7fffffff;
    most = magnitude > most ? magnitude : most;
  }
  float value;
  std::memcpy(&value, &most, 4);
  return value;
}

// q = 256 coarse + rest. The rest -128 is raised by one, so that its negative is a byte:
// AVX2 moves the sign of a weight to the activation.
template <int n>
inline void round_all(const float* x, float inverse, int8_t* coarse, int8_t* rest) {
  float shifted[n];
  int32_t bits[n];
  for (int i = 0; i < n; ++i) shifted[i] = x[i] * inverse + kRound;
  std::memcpy(bits, shifted, sizeof bits);
  for (int i = 0; i < n; ++i) {
    const int32_t q = bits[i] + ((bits[i] & 255) == 128);
    rest[i] = static_cast<int8_t>(q);
    coarse[i] = static_cast<int8_t>((q + 128) >> 8);
  }
}

template <int n>
inline int sum_of(const int8_t* q) {
  int sum = 0;
  for (int i = 0; i < n; ++i) sum += q[i];
  return sum;
}

void quantise_32(const float* x, int blocks, Act32* out) {
  for (int b = 0; b < blocks; ++b, x += 32) {
    const float most = max_abs<32>(x);
    round_all<32>(x, most < kTiny ? 0.0f : kMost / most, out[b].coarse, out[b].rest);
    const int first = 256 * sum_of<16>(out[b].coarse) + sum_of<16>(out[b].rest);
    const int sum = first + 256 * sum_of<16>(out[b].coarse + 16) + sum_of<16>(out[b].rest + 16);
    out[b].d = most / kMost;
    out[b].ds = out[b].d * static_cast<float>(sum);
    out[b].neg8 = -8 * sum;
    out[b].neg8_first = -8 * first;
  }
}

void quantise_256(const float* x, int blocks, Act256* out) {
  for (int b = 0; b < blocks; ++b, x += 256) {
    const float most = max_abs<256>(x);
    round_all<256>(x, most < kTiny ? 0.0f : kMost / most, out[b].coarse, out[b].rest);
    out[b].d = most / kMost;
    for (int part = 0; part < 2; ++part) {
      const int8_t* q = part ? out[b].rest : out[b].coarse;
      int16_t* sum16 = out[b].sum16[part];
      for (int i = 0; i < 16; ++i) sum16[i] = sum_of<16>(q + 16 * i);
      for (int i = 0; i < 8; ++i) out[b].sum32[part][i] = sum16[2 * i] + sum16[2 * i + 1];
    }
  }
}

}  // namespace

void quantise_row(ActKind kind, const float* x, int k, void* act_row) {
  switch (kind) {
    case ACT_Q8_32: quantise_32(x, k / 32, static_cast<Act32*>(act_row)); break;
    case ACT_Q8_256: quantise_256(x, k / 256, static_cast<Act256*>(act_row)); break;
    default: std::memcpy(act_row, x, size_t(k) * sizeof(float));
  }
}

}  // namespace strata::STRATA_ISA
