// Vectors of floats for the layers' own arithmetic: norms, gates, attention.
//
// Knows nothing of models. Everything is inline in the namespace of the instruction
// set that the including source is compiled for; each file provides the same names:
// kLanes floats in a vector, kRegisters vectors, and operations on them. Sums over lanes
// and the exponential have one fixed order and one polynomial, so equal inputs give equal
// bits wherever they are used. (tile_lanes.h is the matrix product's view of the same
// registers.)
#pragma once
#include <cstdint>
#include <cstring>

#if defined(__GNUC__) && !defined(__clang__)
// g++ 12 takes the undefined operands inside its own AVX-512 header for mistakes.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace strata::STRATA_ISA {

struct Bf16 {
  uint16_t bits;
};

}  // namespace strata::STRATA_ISA

#if defined(STRATA_ISA_avx512)
#include "floats_avx512.h"
#elif defined(STRATA_ISA_avx2)
#include "floats_avx2.h"
#elif defined(STRATA_ISA_neon)
#include "floats_neon.h"
#else
#include "floats_portable.h"
#endif

namespace strata::STRATA_ISA {

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
