// 8 floats: AVX2, FMA, F16C. See floats.h.
#pragma once
#include <immintrin.h>

namespace strata::avx2 {

constexpr int kLanes = 8;
constexpr int kRegisters = 16;
using Lanes = __m256;

inline __m256i first(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline Lanes zero() { return _mm256_setzero_ps(); }
inline Lanes splat(float v) { return _mm256_set1_ps(v); }
inline Lanes load(const float* p) { return _mm256_loadu_ps(p); }
inline Lanes load_part(const float* p, int n) { return _mm256_maskload_ps(p, first(n)); }
inline void store(float* p, Lanes v) { _mm256_storeu_ps(p, v); }
inline void store_part(float* p, Lanes v, int n) { _mm256_maskstore_ps(p, first(n), v); }
inline Lanes load(const uint16_t* half) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(half)));
}
inline Lanes load(const Bf16* p) {
  __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline Lanes load(const int8_t* p) {
  __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
}
inline void store_halves(uint16_t* p, Lanes v) {
  __m128i halves = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), halves);
}
inline Lanes fma(Lanes a, Lanes b, Lanes c) { return _mm256_fmadd_ps(a, b, c); }
inline Lanes add(Lanes a, Lanes b) { return _mm256_add_ps(a, b); }
inline Lanes sub(Lanes a, Lanes b) { return _mm256_sub_ps(a, b); }
inline Lanes mul(Lanes a, Lanes b) { return _mm256_mul_ps(a, b); }
inline Lanes div(Lanes a, Lanes b) { return _mm256_div_ps(a, b); }
inline Lanes max(Lanes a, Lanes b) { return _mm256_max_ps(a, b); }
inline Lanes min(Lanes a, Lanes b) { return _mm256_min_ps(a, b); }
inline Lanes keep(Lanes v, int n, float other) {
  return _mm256_blendv_ps(splat(other), v, _mm256_castsi256_ps(first(n)));
}
inline Lanes zero_below(Lanes v, Lanes x, float bound) {
  return _mm256_andnot_ps(_mm256_cmp_ps(x, splat(bound), _CMP_LT_OQ), v);
}
inline Lanes round_even(Lanes v) {
  return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline Lanes scale_by_power(Lanes v, Lanes n) {
  __m256i bits = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(v), bits));
}

inline float sum(Lanes v) {
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline void four_sums(const Lanes* v, float* sums) {
  for (int i = 0; i < 4; i += 2) {
    const Lanes four = add(_mm256_permute2f128_ps(v[i], v[i + 1], 0x20),
                           _mm256_permute2f128_ps(v[i], v[i + 1], 0x31));
    const Lanes two = add(four, _mm256_permute_ps(four, 0x4e));
    const Lanes one = add(two, _mm256_permute_ps(two, 0xb1));
    sums[i] = _mm256_cvtss_f32(one);
    sums[i + 1] = _mm_cvtss_f32(_mm256_extractf128_ps(one, 1));
  }
}

}  // namespace strata::avx2
