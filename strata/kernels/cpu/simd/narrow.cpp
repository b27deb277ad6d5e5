// Floats into the numbers of pages (kv.h), once and for all: to nearest even, kept finite.
//
// An infinite value of one token would turn its masked neighbours' 0 * inf into NaN. NaN stays.
#include <algorithm>

#include "floats.h"
#include "row_arithmetic.h"

namespace strata::STRATA_ISA {

namespace {

constexpr float kMostHalf = 65504.0f, kMostBf16 = 0x1.fep127f;

Lanes bounded(Lanes v, float most) { return min(splat(most), max(splat(-most), v)); }

uint16_t to_bf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0;
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

float from_bf16(uint16_t x) {
  const uint32_t bits = static_cast<uint32_t>(x) << 16;
  float out;
  std::memcpy(&out, &bits, 4);
  return out;
}

void put(uint16_t number, uint8_t* out, size_t place) { std::memcpy(out + 2 * place, &number, 2); }

// The scale of x [n], n <= kScaled: the largest magnitude becomes 127.
uint16_t scale_of(const float* x, int n) {
  Lanes most = zero(), strange = zero();  // the latter NaN if any is
  for (int i = 0; i < n; i += kLanes) {
    Lanes v = bounded(load_part(x + i, std::min(n - i, kLanes)), kMostBf16);
    most = max(most, max(v, sub(zero(), v)));
    strange = fma(v, zero(), strange);
  }
  return to_bf16(largest(most) / 127.0f + sum(strange));
}

void to_bytes(const float* x, int n, float scale, uint8_t* out, size_t step) {
  for (int i = 0; i < n; i += kLanes) {
    const int here = std::min(n - i, kLanes);
    float whole[kLanes] = {};
    if (scale > 0) {
      const Lanes v = bounded(load_part(x + i, here), kMostBf16);
      store(whole, bounded(round_even(div(v, splat(scale))), 127.0f));
    }
    for (int j = 0; j < here; ++j)
      out[(i + j) * step] = static_cast<uint8_t>(static_cast<int8_t>(whole[j]));
  }
}

}  // namespace

void narrow(KvType type, const float* x, int n, uint8_t* out, size_t step, uint8_t* scales,
            size_t scale_step) {
  if (type == KvType::q8) {
    for (int g = 0; g * kScaled < n; ++g) {
      const float* from = x + g * kScaled;
      const int here = std::min(n - g * kScaled, kScaled);
      const uint16_t scale = scale_of(from, here);
      put(scale, scales, g * scale_step);
      to_bytes(from, here, from_bf16(scale), out + g * kScaled * step, step);
    }
    return;
  }
  const bool halves = type == KvType::f16;
  for (int i = 0; i < n; i += kLanes) {
    const int here = std::min(n - i, kLanes);
    const Lanes v = bounded(load_part(x + i, here), halves ? kMostHalf : kMostBf16);
    uint16_t numbers[kLanes];
    if (halves) {
      store_halves(numbers, v);
    } else {
      float wide[kLanes];
      store(wide, v);
      for (int j = 0; j < here; ++j) numbers[j] = to_bf16(wide[j]);
    }
    for (int j = 0; j < here; ++j) put(numbers[j], out, (i + j) * step);
  }
}

}  // namespace strata::STRATA_ISA
