// 4 floats in plain C++ with the vectors that GCC and Clang have. See floats.h.
#pragma once

namespace strata::portable {

constexpr int kLanes = 4;
constexpr int kRegisters = 16;
typedef float Lanes __attribute__((vector_size(16)));
typedef int32_t LaneBits __attribute__((vector_size(16)));

// An IEEE half as a float, exactly; halves below 2^-14 included.
inline float from_half(uint16_t half) {
  uint32_t rest = static_cast<uint32_t>(half & 0x7fffu) << 13;
  float magnitude;
  std::memcpy(&magnitude, &rest, 4);
  magnitude *= 0x1p112f;
  uint32_t bits;
  std::memcpy(&bits, &magnitude, 4);
  if ((half & 0x7c00u) == 0x7c00u) bits = rest | 0x7f800000u;
  bits |= static_cast<uint32_t>(half & 0x8000u) << 16;
  float out;
  std::memcpy(&out, &bits, 4);
  return out;
}
// To nearest even, for |x| <= 65504 and NaN.
inline uint16_t to_half(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return sign | 0x7e00u;
  if (bits < 0x38800000u) {
    // Below 2^-14: adding 1/2 leaves the half's bits at the end of the mantissa.
    float magnitude;
    std::memcpy(&magnitude, &bits, 4);
    magnitude += 0.5f;
    std::memcpy(&bits, &magnitude, 4);
    return static_cast<uint16_t>(sign | (bits - 0x3f000000u));
  }
  uint32_t odd = (bits >> 13) & 1u;
  return static_cast<uint16_t>(sign | ((bits - 0x38000000u + 0xfffu + odd) >> 13));
}
inline Lanes zero() { return Lanes{0, 0, 0, 0}; }
inline Lanes splat(float v) { return Lanes{v, v, v, v}; }
inline Lanes load(const float* p) {
  Lanes v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline Lanes load_part(const float* p, int n) {
  Lanes v = zero();
  for (int i = 0; i < n; ++i) v[i] = p[i];
  return v;
}
inline void store(float* p, Lanes v) { std::memcpy(p, &v, sizeof v); }
inline void store_part(float* p, Lanes v, int n) {
  for (int i = 0; i < n; ++i) p[i] = v[i];
}
inline Lanes load(const uint16_t* half) {
  return Lanes{from_half(half[0]), from_half(half[1]), from_half(half[2]), from_half(half[3])};
}
inline Lanes load(const Bf16* p) {
  uint32_t bits[kLanes];
  for (int i = 0; i < kLanes; ++i) bits[i] = static_cast<uint32_t>(p[i].bits) << 16;
  Lanes v;
  std::memcpy(&v, bits, sizeof v);
  return v;
}
inline Lanes load(const int8_t* p) {
  Lanes v;
  for (int i = 0; i < kLanes; ++i) v[i] = p[i];
  return v;
}
inline void store_halves(uint16_t* p, Lanes v) {
  for (int i = 0; i < kLanes; ++i) p[i] = to_half(v[i]);
}
inline Lanes fma(Lanes a, Lanes b, Lanes c) { return a * b + c; }
inline Lanes add(Lanes a, Lanes b) { return a + b; }
inline Lanes sub(Lanes a, Lanes b) { return a - b; }
inline Lanes mul(Lanes a, Lanes b) { return a * b; }
inline Lanes div(Lanes a, Lanes b) { return a / b; }
inline Lanes max(Lanes a, Lanes b) { return a > b ? a : b; }
inline Lanes min(Lanes a, Lanes b) { return a < b ? a : b; }
inline Lanes keep(Lanes v, int n, float other) {
  for (int i = n; i < kLanes; ++i) v[i] = other;
  return v;
}
inline Lanes zero_below(Lanes v, Lanes x, float bound) { return x < splat(bound) ? zero() : v; }
// Adding and taking away 1.5 * 2^23 leaves the nearest whole number; |v| < 2^22.
inline Lanes round_even(Lanes v) { return (v + 0x1.8p23f) - 0x1.8p23f; }
inline Lanes scale_by_power(Lanes v, Lanes n) {
  LaneBits bits;
  std::memcpy(&bits, &v, sizeof v);
  bits += __builtin_convertvector(n, LaneBits) << 23;
  std::memcpy(&v, &bits, sizeof v);
  return v;
}

inline float sum(Lanes v) { return (v[0] + v[2]) + (v[1] + v[3]); }
inline void four_sums(const Lanes* v, float* sums) {
  for (int i = 0; i < 4; ++i) sums[i] = sum(v[i]);
}

}  // namespace strata::portable
