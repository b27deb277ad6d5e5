// 4 floats: arm64's NEON. See floats.h.
#pragma once
#include <arm_neon.h>

namespace strata::neon {

constexpr int kLanes = 4;
constexpr int kRegisters = 32;
using Lanes = float32x4_t;

inline Lanes zero() { return vdupq_n_f32(0.0f); }
inline Lanes splat(float v) { return vdupq_n_f32(v); }
inline Lanes load(const float* p) { return vld1q_f32(p); }
inline void store(float* p, Lanes v) { vst1q_f32(p, v); }
inline Lanes load_part(const float* p, int n) {
  float lane[kLanes] = {};
  for (int i = 0; i < n; ++i) lane[i] = p[i];
  return load(lane);
}
inline void store_part(float* p, Lanes v, int n) {
  float lane[kLanes];
  store(lane, v);
  for (int i = 0; i < n; ++i) p[i] = lane[i];
}
inline Lanes load(const uint16_t* half) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(half)));
}
inline Lanes load(const Bf16* p) {
  uint16x4_t bits = vld1_u16(reinterpret_cast<const uint16_t*>(p));
  return vreinterpretq_f32_u32(vshll_n_u16(bits, 16));
}
inline Lanes load(const int8_t* p) {
  int8_t bytes[8] = {p[0], p[1], p[2], p[3]};
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vld1_s8(bytes)))));
}
inline void store_halves(uint16_t* p, Lanes v) {
  vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v)));
}
inline Lanes fma(Lanes a, Lanes b, Lanes c) { return vfmaq_f32(c, a, b); }
inline Lanes add(Lanes a, Lanes b) { return vaddq_f32(a, b); }
inline Lanes sub(Lanes a, Lanes b) { return vsubq_f32(a, b); }
inline Lanes mul(Lanes a, Lanes b) { return vmulq_f32(a, b); }
inline Lanes div(Lanes a, Lanes b) { return vdivq_f32(a, b); }
// Of a NaN and a number the second, as on the other instruction sets.
inline Lanes max(Lanes a, Lanes b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
inline Lanes min(Lanes a, Lanes b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
inline Lanes keep(Lanes v, int n, float other) {
  const int32x4_t place = {0, 1, 2, 3};
  return vbslq_f32(vcltq_s32(place, vdupq_n_s32(n)), v, splat(other));
}
inline Lanes zero_below(Lanes v, Lanes x, float bound) {
  return vbslq_f32(vcltq_f32(x, splat(bound)), zero(), v);
}
inline Lanes round_even(Lanes v) { return vrndnq_f32(v); }
inline Lanes scale_by_power(Lanes v, Lanes n) {
  const int32x4_t bits = vshlq_n_s32(vcvtnq_s32_f32(n), 23);
  return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(v), bits));
}

inline float sum(Lanes v) {
  const float32x2_t two = vadd_f32(vget_low_f32(v), vget_high_f32(v));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
inline void four_sums(const Lanes* v, float* sums) {
  for (int i = 0; i < 4; ++i) sums[i] = sum(v[i]);
}

}  // namespace strata::neon
