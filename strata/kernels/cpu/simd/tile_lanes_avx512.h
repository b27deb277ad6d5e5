// 16 lanes: AVX-512 F, BW, VL, DQ, VNNI. See tile_lanes.h.
#pragma once
#include <immintrin.h>

#define KEEP(x) asm volatile("" : "+v"(x))

namespace strata::avx512 {

inline constexpr int kRows = 16;
inline constexpr int kPatchRows = 8;
inline constexpr int kPatch32 = 8;
inline constexpr int kPatch256 = 8;
inline constexpr int kAtOnce = 2;
inline constexpr bool kOffsetQ8 = true;
using F = __m512;
using I = __m512i;
using U = __m512i;
using Four = int32_t __attribute__((may_alias, aligned(1)));
using X = const Four*;  // the instructions that take it broadcast it from memory
using P = __m512i;
using S = __m512i;

STRATA_INLINE F f_zero() { return _mm512_setzero_ps(); }
STRATA_INLINE F f_all(float x) { return _mm512_set1_ps(x); }
STRATA_INLINE F f_load(const void* p) { return _mm512_loadu_ps(p); }
STRATA_INLINE F f_half(const void* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
STRATA_INLINE F f_bf16(const void* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
STRATA_INLINE F f_upper(const void* p) {
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32(~255)));
}
STRATA_INLINE F f_e4m3(const void* p) {
  const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  return _mm512_cvtph_ps(_mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(~0x4000)));
}
STRATA_INLINE F f_mul(F a, F b) { return _mm512_mul_ps(a, b); }
STRATA_INLINE F f_add(F a, F b) { return _mm512_add_ps(a, b); }
STRATA_INLINE F f_fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
STRATA_INLINE F f_fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }
STRATA_INLINE F f_from(I i) { return _mm512_cvtepi32_ps(i); }
STRATA_INLINE F f_load_some(const float* p, int n) {
  return _mm512_maskz_loadu_ps(__mmask16((1u << n) - 1), p);
}
STRATA_INLINE void f_store_some(float* p, F v, int n) {
  _mm512_mask_storeu_ps(p, __mmask16((1u << n) - 1), v);
}

STRATA_INLINE I i_zero() { return _mm512_setzero_si512(); }
STRATA_INLINE I i_all(int32_t x) { return _mm512_set1_epi32(x); }
template <int n>
STRATA_INLINE I i_shift_left(I a) { return _mm512_slli_epi32(a, n); }
STRATA_INLINE I i_bytes(const void* p) {
  return _mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32(255));
}
STRATA_INLINE I i_sub(I a, I b) { return _mm512_sub_epi32(a, b); }
STRATA_INLINE I i_mul(I a, I b) { return _mm512_mullo_epi32(a, b); }

STRATA_INLINE U u_load(const uint8_t* p) { return _mm512_loadu_si512(p); }
STRATA_INLINE U u_low(U u) { return _mm512_and_si512(u, _mm512_set1_epi8(15)); }
STRATA_INLINE U u_high(U u) {
  return _mm512_and_si512(_mm512_srli_epi16(u, 4), _mm512_set1_epi8(15));
}
// low | bit `bit` of the bytes of `bits`, moved to place 4
template <int bit>
STRATA_INLINE U u_fifth(U low, U bits) {
  const U moved = bit < 4 ? _mm512_slli_epi16(bits, bit < 4 ? 4 - bit : 0)
                          : _mm512_srli_epi16(bits, bit < 4 ? 0 : bit - 4);
  return _mm512_ternarylogic_epi32(low, moved, _mm512_set1_epi8(16), 0xf8);  // low | (b & c)
}
// bits [from, from + count) of the bytes
template <int from, int count>
STRATA_INLINE U u_bits(U u) {
  return _mm512_and_si512(_mm512_srli_epi16(u, from), _mm512_set1_epi8((1 << count) - 1));
}
// bits 3 and 7 of the bytes of a, b, c to places 0, 1, 2 and 4, 5, 6; others are anything
STRATA_INLINE U u_spare(U a, U b, U c) {
  const U ab = _mm512_ternarylogic_epi32(_mm512_srli_epi16(a, 3), _mm512_srli_epi16(b, 2),
                                         _mm512_set1_epi8(0x11), 0xe4);  // c ? a : b
  return _mm512_ternarylogic_epi32(ab, _mm512_srli_epi16(c, 1), _mm512_set1_epi8(0x33), 0xe4);
}
STRATA_INLINE U u_table(const void* sixteen) {
  const __m128i x = _mm_loadu_si128(static_cast<const __m128i*>(sixteen));
  return _mm512_maskz_broadcast_i32x4(0xffff, x);  // plain: a false alarm of GCC 12
}
STRATA_INLINE U u_look_up(U table, U u) { return _mm512_shuffle_epi8(table, u); }
// low | bits 2 pair and 2 pair + 1 of the bytes of `bits`, moved to places 4 and 5
template <int pair>
STRATA_INLINE U u_two(U low, U bits) {
  const U moved = pair < 2 ? _mm512_slli_epi16(bits, pair < 2 ? 4 - 2 * pair : 0)
                           : _mm512_srli_epi16(bits, pair < 2 ? 0 : 2 * pair - 4);
  return _mm512_ternarylogic_epi32(low, moved, _mm512_set1_epi8(48), 0xf8);
}
STRATA_INLINE X x_all(const void* p) { return static_cast<X>(p); }

// total + products, the activations being broadcast by the instruction itself: GCC 12
// gives each intrinsic a broadcast of its own and up to two moves.
STRATA_INLINE I add_products(I total, U u, X x) {
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(total) : "v"(u), "m"(*x));
  return total;
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
  STRATA_INLINE I sum(const I*) const {
    return _mm512_add_epi32(_mm512_slli_epi32(high, 8), low);
  }
};

STRATA_INLINE P p_unsigned(const uint8_t* p) {
  return _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
STRATA_INLINE P p_signed(const uint8_t* p) {
  return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
STRATA_INLINE P p_all(int16_t x) { return _mm512_set1_epi16(x); }
STRATA_INLINE P p_odd(const uint8_t* p) {
  const __m512i wide = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m512i pairs = _mm512_ternarylogic_epi32(wide, _mm512_slli_epi32(wide, 12),
                                                  _mm512_set1_epi32(0x000f000f), 0xa8);
  return _mm512_or_si512(_mm512_slli_epi32(pairs, 1), _mm512_set1_epi16(1));
}
STRATA_INLINE P p_low(P p) { return _mm512_and_si512(p, _mm512_set1_epi16(15)); }
STRATA_INLINE P p_high(P p) { return _mm512_srli_epi16(p, 4); }
STRATA_INLINE P p_mul(P a, P b) { return _mm512_mullo_epi16(a, b); }
STRATA_INLINE S s_unsigned(const uint8_t* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
template <int which>
STRATA_INLINE S s_of(P pair) {
  return _mm512_srai_epi32(which ? pair : _mm512_slli_epi32(pair, 16), 16);
}
STRATA_INLINE I p_dot(I total, P pair, X two) {
  asm("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(total) : "v"(pair), "m"(*two));
  return total;
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
    if constexpr (4 * steps * 127 * ((1 << bits) - 1) < 1 << 15) {  // the sum is in its lower half
      const I low = _mm512_and_si512(s, _mm512_set1_epi32(0xffff));
      asm("vpdpwssd %2, %1, %0" : "+v"(total) : "v"(part), "v"(low));
    } else {
      total = _mm512_add_epi32(total, _mm512_mullo_epi32(part, s));
    }
    KEEP(total);
  }
};

}  // namespace strata::avx512
