// Vectors of floats for the layers' own arithmetic: norms, gates, attention.
//
// Knows nothing of models. Everything is inline in the namespace of the instruction
// set that the including source is compiled for. Sums over lanes and the exponential
// have one fixed order and one polynomial, so equal inputs give equal bits wherever
// they are used. (lanes.h is the matrix product's view of the same registers.)
#pragma once
#include <cstdint>
#include <cstring>

#if defined(STRATA_ISA_avx512) || defined(STRATA_ISA_avx2)
#include <immintrin.h>
#endif
#if defined(__GNUC__) && !defined(__clang__)
// g++ 12 takes the undefined operands inside its own AVX-512 header for mistakes.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace strata::STRATA_ISA {

struct Bf16 {
  uint16_t bits;
};

#if defined(STRATA_ISA_avx512)

constexpr int kLanes = 16;
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

#elif defined(STRATA_ISA_avx2)

constexpr int kLanes = 8;
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

#else

constexpr int kLanes = 4;
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

#endif

// Lanes added in halves: (0 + n/2), (1 + n/2 + 1), ... down to one.
inline float sum(Lanes v) {
#if defined(STRATA_ISA_avx512) || defined(STRATA_ISA_avx2)
#if defined(STRATA_ISA_avx512)
  __m256 eight = _mm256_add_ps(_mm512_maskz_extractf32x8_ps(0xff, v, 0),
                               _mm512_maskz_extractf32x8_ps(0xff, v, 1));
#else
  __m256 eight = v;
#endif
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
#else
  float lane[kLanes];
  store(lane, v);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
  return lane[0];
#endif
}

// sum() of each of four, to the bit, in fewer instructions.
inline void four_sums(const Lanes* v, float* sums) {
#if defined(STRATA_ISA_avx512)
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
#elif defined(STRATA_ISA_avx2)
  for (int i = 0; i < 4; i += 2) {
    const Lanes four = add(_mm256_permute2f128_ps(v[i], v[i + 1], 0x20),
                           _mm256_permute2f128_ps(v[i], v[i + 1], 0x31));
    const Lanes two = add(four, _mm256_permute_ps(four, 0x4e));
    const Lanes one = add(two, _mm256_permute_ps(two, 0xb1));
    sums[i] = _mm256_cvtss_f32(one);
    sums[i + 1] = _mm_cvtss_f32(_mm256_extractf128_ps(one, 1));
  }
#else
  for (int i = 0; i < 4; ++i) sums[i] = sum(v[i]);
#endif
}

inline float largest(Lanes v) {
  float lane[kLanes];
  store(lane, v);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lane[i] = lane[i] > lane[i + half] ? lane[i] : lane[i + half];
  return lane[0];
}

// 2^x for x <= 126, relative error about 1e-7; 0 below -126.
inline Lanes exp2(Lanes x) {
  Lanes clamped = max(splat(-126.0f), x);
  Lanes whole = round_even(clamped);
  Lanes f = sub(clamped, whole);
  // Taylor coefficients of 2^f, ln(2)^n / n!, with |f| <= 1/2.
  Lanes p = splat(1.5403530e-4f);
  p = fma(p, f, splat(1.3333558e-3f));
  p = fma(p, f, splat(9.6181291e-3f));
  p = fma(p, f, splat(5.5504109e-2f));
  p = fma(p, f, splat(2.4022651e-1f));
  p = fma(p, f, splat(6.9314718e-1f));
  p = fma(p, f, splat(1.0f));
  return zero_below(scale_by_power(p, whole), x, -126.0f);
}

}  // namespace strata::STRATA_ISA
