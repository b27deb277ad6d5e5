// 8 lanes: AVX2, FMA, F16C. See tile_lanes.h.
//
// Products of 4- and 5-bit weights are summed in int16 as long as they fit:
// |x| <= 127, so a pair of products is at most 2 * 127 * (2^bits - 1), and eight,
// four, two or one pairs of 4, 5, 6 or 7 bits stay below 2^15.
#pragma once
#include <immintrin.h>

#define KEEP(x) asm volatile("" : "+x"(x))

namespace strata::avx2 {

inline constexpr int kRows = 8;
inline constexpr int kPatchRows = 4;
inline constexpr int kPatch32 = 4;
inline constexpr int kPatch256 = 4;
inline constexpr int kAtOnce = 2;
inline constexpr bool kOffsetQ8 = false;
using F = __m256;
using I = __m256i;
using U = __m256i;
using X = __m256i;
using P = __m256i;
using S = __m256i;  // int32 lanes that hold the factor in both halves

STRATA_INLINE F f_zero() { return _mm256_setzero_ps(); }
STRATA_INLINE F f_all(float x) { return _mm256_set1_ps(x); }
STRATA_INLINE F f_load(const void* p) { return _mm256_loadu_ps(static_cast<const float*>(p)); }
STRATA_INLINE F f_half(const void* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
STRATA_INLINE F f_bf16(const void* p) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
STRATA_INLINE F f_upper(const void* p) {
  const __m256i words = _mm256_loadu_si256(static_cast<const __m256i*>(p));
  return _mm256_castsi256_ps(_mm256_and_si256(words, _mm256_set1_epi32(~255)));
}
STRATA_INLINE F f_e4m3(const void* p) {
  const __m128i wide = _mm_cvtepi8_epi16(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
  return _mm256_cvtph_ps(_mm_and_si128(_mm_slli_epi16(wide, 7), _mm_set1_epi16(~0x4000)));
}
STRATA_INLINE F f_mul(F a, F b) { return _mm256_mul_ps(a, b); }
STRATA_INLINE F f_add(F a, F b) { return _mm256_add_ps(a, b); }
STRATA_INLINE F f_fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
STRATA_INLINE F f_fnma(F a, F b, F c) { return _mm256_fnmadd_ps(a, b, c); }
STRATA_INLINE F f_from(I i) { return _mm256_cvtepi32_ps(i); }
STRATA_INLINE __m256i first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
STRATA_INLINE F f_load_some(const float* p, int n) {
  return _mm256_maskload_ps(p, first_lanes(n));
}
STRATA_INLINE void f_store_some(float* p, F v, int n) {
  _mm256_maskstore_ps(p, first_lanes(n), v);
}

STRATA_INLINE I i_zero() { return _mm256_setzero_si256(); }
STRATA_INLINE I i_all(int32_t x) { return _mm256_set1_epi32(x); }
template <int n>
STRATA_INLINE I i_shift_left(I a) { return _mm256_slli_epi32(a, n); }
STRATA_INLINE I i_bytes(const void* p) {
  const __m256i words = _mm256_loadu_si256(static_cast<const __m256i*>(p));
  return _mm256_and_si256(words, _mm256_set1_epi32(255));
}
STRATA_INLINE I i_sub(I a, I b) { return _mm256_sub_epi32(a, b); }
STRATA_INLINE I i_mul(I a, I b) { return _mm256_mullo_epi32(a, b); }

STRATA_INLINE U u_load(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
STRATA_INLINE U u_low(U u) { return _mm256_and_si256(u, _mm256_set1_epi8(15)); }
STRATA_INLINE U u_high(U u) {
  return _mm256_and_si256(_mm256_srli_epi16(u, 4), _mm256_set1_epi8(15));
}
template <int bit>
STRATA_INLINE U u_fifth(U low, U bits) {
  const U moved = bit < 4 ? _mm256_slli_epi16(bits, bit < 4 ? 4 - bit : 0)
                          : _mm256_srli_epi16(bits, bit < 4 ? 0 : bit - 4);
  return _mm256_or_si256(low, _mm256_and_si256(moved, _mm256_set1_epi8(16)));
}
template <int from, int count>
STRATA_INLINE U u_bits(U u) {
  return _mm256_and_si256(_mm256_srli_epi16(u, from), _mm256_set1_epi8((1 << count) - 1));
}
STRATA_INLINE U u_spare(U a, U b, U c) {
  const U a1 = _mm256_and_si256(_mm256_srli_epi16(a, 3), _mm256_set1_epi8(0x11));
  const U b1 = _mm256_and_si256(_mm256_srli_epi16(b, 2), _mm256_set1_epi8(0x22));
  const U c1 = _mm256_and_si256(_mm256_srli_epi16(c, 1), _mm256_set1_epi8(0x44));
  return _mm256_or_si256(_mm256_or_si256(a1, b1), c1);
}
STRATA_INLINE U u_table(const void* sixteen) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(sixteen)));
}
STRATA_INLINE U u_look_up(U table, U u) { return _mm256_shuffle_epi8(table, u); }
template <int pair>
STRATA_INLINE U u_two(U low, U bits) {
  const U moved = pair < 2 ? _mm256_slli_epi16(bits, pair < 2 ? 4 - 2 * pair : 0)
                           : _mm256_srli_epi16(bits, pair < 2 ? 0 : 2 * pair - 4);
  return _mm256_or_si256(low, _mm256_and_si256(moved, _mm256_set1_epi8(48)));
}
STRATA_INLINE X x_all(const void* p) {
  int32_t four;
  std::memcpy(&four, p, 4);
  return _mm256_set1_epi32(four);
}

constexpr int run_of(int bits) { return bits <= 4 ? 8 : 128 >> bits; }
STRATA_INLINE I pair_sums(I halves) { return _mm256_madd_epi16(halves, _mm256_set1_epi16(1)); }

// The same for both bytes: 256 times the pair sums of high, plus those of low.
STRATA_INLINE I pair_sums(I high, I low) {
  return _mm256_add_epi32(_mm256_madd_epi16(high, _mm256_set1_epi16(256)), pair_sums(low));
}

template <int bits>
struct PairDot {
  I total, high, low;
  STRATA_INLINE void start(const I*) {}
  STRATA_INLINE void step(int at, U u, X coarse, X rest) {
    constexpr int run = run_of(bits);
    const I products = _mm256_maddubs_epi16(u, coarse);
    high = at % run == 0 ? products : _mm256_add_epi16(high, products);
    KEEP(high);
    const I rests = _mm256_maddubs_epi16(u, rest);
    low = at % run == 0 ? rests : _mm256_add_epi16(low, rests);
    KEEP(low);
    if (at % run == run - 1) {
      const I sums = pair_sums(high, low);
      total = at < run ? sums : _mm256_add_epi32(total, sums);
    }
  }
  STRATA_INLINE I sum(const I* neg) const { return neg ? _mm256_add_epi32(total, *neg) : total; }
};

// Signed weights: |w| times x with w's sign; |w| <= 128, so a pair fits int16.
template <>
struct PairDot<8> {
  I total;
  STRATA_INLINE void start(const I*) {}
  STRATA_INLINE void step(int at, U u, X coarse, X rest) {
    const U size = _mm256_abs_epi8(u);
    const I part = pair_sums(_mm256_maddubs_epi16(size, _mm256_sign_epi8(coarse, u)),
                             _mm256_maddubs_epi16(size, _mm256_sign_epi8(rest, u)));
    total = at == 0 ? part : _mm256_add_epi32(total, part);
    KEEP(total);
  }
  STRATA_INLINE I sum(const I*) const { return total; }
};

STRATA_INLINE P p_unsigned(const uint8_t* p) {
  return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
STRATA_INLINE P p_signed(const uint8_t* p) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
STRATA_INLINE P p_all(int16_t x) { return _mm256_set1_epi16(x); }
STRATA_INLINE P p_odd(const uint8_t* p) {
  const I wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const I pairs = _mm256_and_si256(_mm256_or_si256(wide, _mm256_slli_epi32(wide, 12)),
                                   _mm256_set1_epi32(0x000f000f));
  return _mm256_or_si256(_mm256_slli_epi32(pairs, 1), _mm256_set1_epi16(1));
}
STRATA_INLINE P p_low(P p) { return _mm256_and_si256(p, _mm256_set1_epi16(15)); }
STRATA_INLINE P p_high(P p) { return _mm256_srli_epi16(p, 4); }
STRATA_INLINE P p_mul(P a, P b) { return _mm256_mullo_epi16(a, b); }
STRATA_INLINE S s_unsigned(const uint8_t* p) {
  const I wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  return _mm256_or_si256(wide, _mm256_slli_epi32(wide, 16));
}
template <int which>
STRATA_INLINE S s_of(P pair) {
  const I one = which ? _mm256_srli_epi32(pair, 16)
                      : _mm256_and_si256(pair, _mm256_set1_epi32(0xffff));
  return _mm256_or_si256(one, _mm256_slli_epi32(one, 16));
}
STRATA_INLINE I p_dot(I total, P pair, X two) {
  return _mm256_add_epi32(total, _mm256_madd_epi16(pair, two));
}

template <int bits>
constexpr int kDotSteps = bits < 7 ? 8 : 2;

template <int bits, int steps>
struct ScaledDot {
  static constexpr int kRun = run_of(bits) < steps ? run_of(bits) : steps;
  I half[steps / kRun];
  STRATA_INLINE void step(int at, U u, X x) {
    I& h = half[at / kRun];
    const I products = _mm256_maddubs_epi16(u, x);
    h = at % kRun == 0 ? products : _mm256_add_epi16(h, products);
    KEEP(h);
  }
  STRATA_INLINE void add_to(I& total, S s) const {
    STRATA_UNROLL for (int i = 0; i < steps / kRun; ++i) {
      total = _mm256_add_epi32(total, _mm256_madd_epi16(half[i], s));
    }
    KEEP(total);
  }
};

// Signed weights, as in PairDot<8>.
template <int steps>
struct ScaledDot<8, steps> {
  I half[steps];
  STRATA_INLINE void step(int at, U u, X x) {
    half[at] = _mm256_maddubs_epi16(_mm256_abs_epi8(u), _mm256_sign_epi8(x, u));
    KEEP(half[at]);
  }
  STRATA_INLINE void add_to(I& total, S s) const {
    STRATA_UNROLL for (int i = 0; i < steps; ++i) {
      total = _mm256_add_epi32(total, _mm256_madd_epi16(half[i], s));
    }
    KEEP(total);
  }
};

}  // namespace strata::avx2
