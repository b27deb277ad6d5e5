// 16 floats: AVX-512. See floats.h.
#pragma once
#include <immintrin.h>

namespace strata::avx512 {

constexpr int kLanes = 16;
constexpr int kRegisters = 32;
using Lanes = __m512;

inline __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
inline Lanes zero() { return _mm512_setzero_ps(); }
inline Lanes splat(float v) { return _mm512_set1_ps(v); }
inline Lanes load(const float* p) { return _mm512_loadu_ps(p); }
inline Lanes load_part(const float* p, int n) { return _mm512_maskz_loadu_ps(first(n), p); }
inline void store(float* p, Lanes v) { _mm512_storeu_ps(p, v); }
inline void store_part(float* p, Lanes v, int n) { _mm512_mask_storeu_ps(p, first(n), v); }
inline Lanes load(const uint16_t* half) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(half)));
}
inline Lanes load(const Bf16* p) {
  __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
inline Lanes load(const int8_t* p) {
  __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}
inline void store_halves(uint16_t* p, Lanes v) {
  __m256i halves = _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), halves);
}
inline Lanes fma(Lanes a, Lanes b, Lanes c) { return _mm512_fmadd_ps(a, b, c); }
inline Lanes add(Lanes a, Lanes b) { return _mm512_add_ps(a, b); }
inline Lanes sub(Lanes a, Lanes b) { return _mm512_sub_ps(a, b); }
inline Lanes mul(Lanes a, Lanes b) { return _mm512_mul_ps(a, b); }
inline Lanes div(Lanes a, Lanes b) { return _mm512_div_ps(a, b); }
inline Lanes max(Lanes a, Lanes b) { return _mm512_max_ps(a, b); }
inline Lanes min(Lanes a, Lanes b) { return _mm512_min_ps(a, b); }
// Lanes below n keep their value, the others become `other`.
inline Lanes keep(Lanes v, int n, float other) {
  return _mm512_mask_blend_ps(first(n), splat(other), v);
}
inline Lanes zero_below(Lanes v, Lanes x, float bound) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, splat(bound), _CMP_LT_OQ), v, zero());
}
inline Lanes round_even(Lanes v) {
  return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// v * 2^n for whole n, where the result is a normal number.
inline Lanes scale_by_power(Lanes v, Lanes n) {
  __m512i bits = _mm512_slli_epi32(_mm512_cvtps_epi32(n), 23);
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(v), bits));
}

// Lanes added in halves, as in every file of this kind: (0 + n/2), (1 + n/2 + 1), ...
inline float sum(Lanes v) {
  __m256 eight = _mm256_add_ps(_mm512_maskz_extractf32x8_ps(0xff, v, 0),
                               _mm512_maskz_extractf32x8_ps(0xff, v, 1));
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
// sum() of each of four, to the bit, in fewer instructions.
inline void four_sums(const Lanes* v, float* sums) {
  auto both = [](Lanes a, Lanes b) {  // of each its quarters 0 + 2, 1 + 3
    return add(_mm512_maskz_shuffle_f32x4(0xffff, a, b, 0x44),
               _mm512_maskz_shuffle_f32x4(0xffff, a, b, 0xee));
  };
  const Lanes ab = both(v[0], v[1]), cd = both(v[2], v[3]);
  const Lanes four = add(_mm512_maskz_shuffle_f32x4(0xffff, ab, cd, 0x88),
                         _mm512_maskz_shuffle_f32x4(0xffff, ab, cd, 0xdd));
  const Lanes two = add(four, _mm512_maskz_permute_ps(0xffff, four, 0x4e));
  const Lanes one = add(two, _mm512_maskz_permute_ps(0xffff, two, 0xb1));
  const __m512i firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  const Lanes packed = _mm512_maskz_permutexvar_ps(0xffff, firsts, one);
  _mm_storeu_ps(sums, _mm512_maskz_extractf32x4_ps(0xf, packed, 0));
}

}  // namespace strata::avx512
