// 8 lanes in two registers: arm64's NEON with dot products (ARMv8.2-A). See tile_lanes.h.
//
// Weights of at most 6 bits are bytes below 128, so the signed product serves them all.
#pragma once
#include <arm_neon.h>

#define KEEP(x) asm volatile("" : "+w"((x).v[0]), "+w"((x).v[1]))

namespace strata::neon {

inline constexpr int kRows = 8;
inline constexpr int kPatchRows = 4;
inline constexpr int kPatch32 = 4;
inline constexpr int kPatch256 = 4;
inline constexpr int kAtOnce = 2;
inline constexpr bool kOffsetQ8 = false;
struct F { float32x4_t v[2]; };
struct I { int32x4_t v[2]; };
struct U { uint8x16_t v[2]; };
struct P { int16x8_t v[2]; };
using X = int8x16_t;
using S = I;

STRATA_INLINE F f_all(float x) { return {{vdupq_n_f32(x), vdupq_n_f32(x)}}; }
STRATA_INLINE F f_zero() { return f_all(0.0f); }
STRATA_INLINE F f_load(const void* p) {
  const float* from = static_cast<const float*>(p);
  return {{vld1q_f32(from), vld1q_f32(from + 4)}};
}
STRATA_INLINE F f_half(const void* p) {
  const float16x8_t halves = vreinterpretq_f16_u16(vld1q_u16(static_cast<const uint16_t*>(p)));
  return {{vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)}};
}
STRATA_INLINE F f_bf16(const void* p) {
  const uint16x8_t halves = vld1q_u16(static_cast<const uint16_t*>(p));
  return {{vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(halves), 16)),
           vreinterpretq_f32_u32(vshll_high_n_u16(halves, 16))}};
}
STRATA_INLINE F f_upper(const void* p) {
  const uint32_t* words = static_cast<const uint32_t*>(p);
  const uint32x4_t mask = vdupq_n_u32(~255u);
  return {{vreinterpretq_f32_u32(vandq_u32(vld1q_u32(words), mask)),
           vreinterpretq_f32_u32(vandq_u32(vld1q_u32(words + 4), mask))}};
}
STRATA_INLINE F f_e4m3(const void* p) {
  const int16x8_t wide = vshlq_n_s16(vmovl_s8(vld1_s8(static_cast<const int8_t*>(p))), 7);
  const int16x8_t masked = vandq_s16(wide, vdupq_n_s16(~0x4000));
  const float16x8_t halves = vreinterpretq_f16_s16(masked);
  return {{vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)}};
}
STRATA_INLINE F f_mul(F a, F b) {
  return {{vmulq_f32(a.v[0], b.v[0]), vmulq_f32(a.v[1], b.v[1])}};
}
STRATA_INLINE F f_add(F a, F b) {
  return {{vaddq_f32(a.v[0], b.v[0]), vaddq_f32(a.v[1], b.v[1])}};
}
STRATA_INLINE F f_fma(F a, F b, F c) {
  return {{vfmaq_f32(c.v[0], a.v[0], b.v[0]), vfmaq_f32(c.v[1], a.v[1], b.v[1])}};
}
STRATA_INLINE F f_fnma(F a, F b, F c) {
  return {{vfmsq_f32(c.v[0], a.v[0], b.v[0]), vfmsq_f32(c.v[1], a.v[1], b.v[1])}};
}
STRATA_INLINE F f_from(I i) { return {{vcvtq_f32_s32(i.v[0]), vcvtq_f32_s32(i.v[1])}}; }
STRATA_INLINE F f_load_some(const float* p, int n) {
  if (n == kRows) return f_load(p);
  float lane[kRows] = {};
  for (int r = 0; r < n; ++r) lane[r] = p[r];
  return f_load(lane);
}
STRATA_INLINE void f_store_some(float* p, F v, int n) {
  float lane[kRows];
  float* to = n == kRows ? p : lane;
  vst1q_f32(to, v.v[0]);
  vst1q_f32(to + 4, v.v[1]);
  if (n < kRows) for (int r = 0; r < n; ++r) p[r] = lane[r];
}

STRATA_INLINE I i_all(int32_t x) { return {{vdupq_n_s32(x), vdupq_n_s32(x)}}; }
STRATA_INLINE I i_zero() { return i_all(0); }
template <int n>
STRATA_INLINE I i_shift_left(I a) {
  return {{vshlq_n_s32(a.v[0], n), vshlq_n_s32(a.v[1], n)}};
}
STRATA_INLINE I i_sub(I a, I b) {
  return {{vsubq_s32(a.v[0], b.v[0]), vsubq_s32(a.v[1], b.v[1])}};
}
STRATA_INLINE I i_mul(I a, I b) {
  return {{vmulq_s32(a.v[0], b.v[0]), vmulq_s32(a.v[1], b.v[1])}};
}
STRATA_INLINE I i_bytes(const void* p) {
  const int32_t* words = static_cast<const int32_t*>(p);
  const int32x4_t mask = vdupq_n_s32(255);
  return {{vandq_s32(vld1q_s32(words), mask), vandq_s32(vld1q_s32(words + 4), mask)}};
}
STRATA_INLINE I i_add(I a, I b) {
  return {{vaddq_s32(a.v[0], b.v[0]), vaddq_s32(a.v[1], b.v[1])}};
}

STRATA_INLINE U u_load(const uint8_t* p) { return {{vld1q_u8(p), vld1q_u8(p + 16)}}; }
STRATA_INLINE uint8x16_t masked(uint8x16_t bytes, uint8_t mask) {
  return vandq_u8(bytes, vdupq_n_u8(mask));
}
// To the left where n is positive.
template <int n>
STRATA_INLINE uint8x16_t moved(uint8x16_t bytes) {
  if constexpr (n > 0) return vshlq_n_u8(bytes, n);
  else if constexpr (n < 0) return vshrq_n_u8(bytes, -n);
  else return bytes;
}
STRATA_INLINE U u_low(U u) { return {{masked(u.v[0], 15), masked(u.v[1], 15)}}; }
STRATA_INLINE U u_high(U u) { return {{vshrq_n_u8(u.v[0], 4), vshrq_n_u8(u.v[1], 4)}}; }
template <int bit>
STRATA_INLINE U u_fifth(U low, U bits) {
  return {{vorrq_u8(low.v[0], masked(moved<4 - bit>(bits.v[0]), 16)),
           vorrq_u8(low.v[1], masked(moved<4 - bit>(bits.v[1]), 16))}};
}
template <int from, int count>
STRATA_INLINE U u_bits(U u) {
  return {{masked(moved<-from>(u.v[0]), (1 << count) - 1),
           masked(moved<-from>(u.v[1]), (1 << count) - 1)}};
}
STRATA_INLINE uint8x16_t spare(uint8x16_t a, uint8x16_t b, uint8x16_t c) {
  return vorrq_u8(vorrq_u8(masked(vshrq_n_u8(a, 3), 0x11), masked(vshrq_n_u8(b, 2), 0x22)),
                  masked(vshrq_n_u8(c, 1), 0x44));
}
STRATA_INLINE U u_spare(U a, U b, U c) {
  return {{spare(a.v[0], b.v[0], c.v[0]), spare(a.v[1], b.v[1], c.v[1])}};
}
STRATA_INLINE U u_table(const void* sixteen) {
  const uint8x16_t table = vld1q_u8(static_cast<const uint8_t*>(sixteen));
  return {{table, table}};
}
STRATA_INLINE U u_look_up(U table, U u) {
  return {{vqtbl1q_u8(table.v[0], u.v[0]), vqtbl1q_u8(table.v[0], u.v[1])}};
}
template <int pair>
STRATA_INLINE U u_two(U low, U bits) {
  return {{vorrq_u8(low.v[0], masked(moved<4 - 2 * pair>(bits.v[0]), 48)),
           vorrq_u8(low.v[1], masked(moved<4 - 2 * pair>(bits.v[1]), 48))}};
}
STRATA_INLINE X x_all(const void* p) {
  int32_t four;
  std::memcpy(&four, p, 4);
  return vreinterpretq_s8_s32(vdupq_n_s32(four));
}

STRATA_INLINE I add_products(I total, U u, X x) {
  return {{vdotq_s32(total.v[0], vreinterpretq_s8_u8(u.v[0]), x),
           vdotq_s32(total.v[1], vreinterpretq_s8_u8(u.v[1]), x)}};
}

template <int bits>
struct PairDot {
  I high, low;
  STRATA_INLINE void start(const I* neg) {
    high = i_zero();
    low = neg ? *neg : i_zero();
  }
  STRATA_INLINE void step(int, U u, X coarse, X rest) {
    high = add_products(high, u, coarse);
    low = add_products(low, u, rest);
  }
  STRATA_INLINE I sum(const I*) const { return i_add(i_shift_left<8>(high), low); }
};

STRATA_INLINE P p_unsigned(const uint8_t* p) {
  const uint8x16_t bytes = vld1q_u8(p);
  return {{vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(bytes))),
           vreinterpretq_s16_u16(vmovl_high_u8(bytes))}};
}
STRATA_INLINE P p_signed(const uint8_t* p) {
  const int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(p));
  return {{vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes)}};
}
STRATA_INLINE P p_all(int16_t x) { return {{vdupq_n_s16(x), vdupq_n_s16(x)}}; }
STRATA_INLINE int16x8_t odd(uint8x8_t fours) {
  const uint16x8_t doubled = vshll_n_u8(fours, 1);
  return vreinterpretq_s16_u16(vorrq_u16(doubled, vdupq_n_u16(1)));
}
STRATA_INLINE P p_odd(const uint8_t* p) {
  const uint8x8_t both = vld1_u8(p), low = vand_u8(both, vdup_n_u8(15)), high = vshr_n_u8(both, 4);
  return {{odd(vzip1_u8(low, high)), odd(vzip2_u8(low, high))}};
}
STRATA_INLINE P p_low(P p) {
  return {{vandq_s16(p.v[0], vdupq_n_s16(15)), vandq_s16(p.v[1], vdupq_n_s16(15))}};
}
STRATA_INLINE P p_high(P p) { return {{vshrq_n_s16(p.v[0], 4), vshrq_n_s16(p.v[1], 4)}}; }
STRATA_INLINE P p_mul(P a, P b) {
  return {{vmulq_s16(a.v[0], b.v[0]), vmulq_s16(a.v[1], b.v[1])}};
}
STRATA_INLINE S s_unsigned(const uint8_t* p) {
  const uint16x8_t wide = vmovl_u8(vld1_u8(p));
  return {{vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(wide))),
           vreinterpretq_s32_u32(vmovl_high_u16(wide))}};
}
template <int which>
STRATA_INLINE int32x4_t one_of(int16x8_t pairs) {
  const int32x4_t both = vreinterpretq_s32_s16(pairs);
  return vshrq_n_s32(which ? both : vshlq_n_s32(both, 16), 16);
}
template <int which>
STRATA_INLINE S s_of(P pair) {
  return {{one_of<which>(pair.v[0]), one_of<which>(pair.v[1])}};
}
STRATA_INLINE int32x4_t pair_products(int16x8_t pairs, int16x8_t two) {
  return vpaddq_s32(vmull_s16(vget_low_s16(pairs), vget_low_s16(two)),
                    vmull_high_s16(pairs, two));
}
STRATA_INLINE I p_dot(I total, P pair, X two) {
  const int16x8_t x = vreinterpretq_s16_s8(two);
  return i_add(total, {{pair_products(pair.v[0], x), pair_products(pair.v[1], x)}});
}

template <int bits>
constexpr int kDotSteps = 8;

template <int bits, int steps>
struct ScaledDot {
  I part;
  STRATA_INLINE void step(int at, U u, X x) {
    part = add_products(at == 0 ? i_zero() : part, u, x);
  }
  STRATA_INLINE void add_to(I& total, S s) const {
    total = {{vmlaq_s32(total.v[0], part.v[0], s.v[0]), vmlaq_s32(total.v[1], part.v[1], s.v[1])}};
    KEEP(total);
  }
};

}  // namespace strata::neon
