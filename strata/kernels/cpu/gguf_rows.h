// The blocks of GGUF rows as they lie in a file, their sizes, and the small floats in them.
// The layouts are those of ggml-common.h and of the `gguf` package; what the bytes of the
// super-blocks mean is in codes.cpp, of the others in dequantise.cpp.
#pragma once
#include <cstdint>
#include <cstring>

#include "linear.h"

namespace strata {

struct RowQ8_0 { uint8_t d[2]; int8_t q[32]; };
struct RowQ4_0 { uint8_t d[2]; uint8_t q[16]; };
struct RowQ4_1 { uint8_t d[2], m[2]; uint8_t q[16]; };
struct RowQ5_0 { uint8_t d[2]; uint8_t bits[4]; uint8_t q[16]; };
struct RowQ5_1 { uint8_t d[2], m[2]; uint8_t bits[4]; uint8_t q[16]; };
struct RowQ4_K { uint8_t d[2], dmin[2]; uint8_t scales[12]; uint8_t q[128]; };
struct RowQ5_K { uint8_t d[2], dmin[2]; uint8_t scales[12]; uint8_t bits[32]; uint8_t q[128]; };
struct RowQ6_K { uint8_t q[128]; uint8_t bits[64]; int8_t scales[16]; uint8_t d[2]; };
struct RowF8 { uint8_t d[4]; uint8_t q[128]; };
struct RowI4 { uint8_t head[4]; uint8_t q[16]; };
static_assert(sizeof(RowF8) == 132 && sizeof(RowI4) == 20);
struct RowQ2_K { uint8_t scales[16]; uint8_t q[64]; uint8_t d[2], dmin[2]; };
struct RowQ3_K { uint8_t bits[32]; uint8_t q[64]; uint8_t scales[12]; uint8_t d[2]; };
struct RowTQ1_0 { uint8_t q[48]; uint8_t last[4]; uint8_t d[2]; };
struct RowTQ2_0 { uint8_t q[64]; uint8_t d[2]; };
struct RowIQ1_S { uint8_t d[2]; uint8_t q[32]; uint8_t high[16]; };
struct RowIQ1_M { uint8_t q[32]; uint8_t high[16]; uint8_t scales[8]; };
struct RowIQ2_XXS { uint8_t d[2]; uint8_t q[64]; };
struct RowIQ2_XS { uint8_t d[2]; uint8_t q[64]; uint8_t scales[8]; };
struct RowIQ2_S { uint8_t d[2]; uint8_t q[32]; uint8_t signs[32]; uint8_t high[8], scales[8]; };
struct RowIQ3_XXS { uint8_t d[2]; uint8_t q[64]; uint8_t signs[32]; };
struct RowIQ3_S { uint8_t d[2]; uint8_t q[64]; uint8_t high[8], signs[32], scales[4]; };
struct RowIQ4_XS { uint8_t d[2]; uint8_t high[2]; uint8_t scales[4]; uint8_t q[128]; };
struct RowIQ4_NL { uint8_t d[2]; uint8_t q[16]; };
struct RowMXFP4 { uint8_t e; uint8_t q[16]; };
struct RowNVFP4 { uint8_t scales[4]; uint8_t q[32]; };
static_assert(sizeof(RowQ8_0) == 34 && sizeof(RowQ4_0) == 18 && sizeof(RowQ4_1) == 20);
static_assert(sizeof(RowQ5_0) == 22 && sizeof(RowQ5_1) == 24 && sizeof(RowQ4_K) == 144);
static_assert(sizeof(RowQ5_K) == 176 && sizeof(RowQ6_K) == 210);
static_assert(sizeof(RowQ2_K) == 84 && sizeof(RowQ3_K) == 110 && sizeof(RowTQ1_0) == 54);
static_assert(sizeof(RowTQ2_0) == 66 && sizeof(RowIQ1_S) == 50 && sizeof(RowIQ1_M) == 56);
static_assert(sizeof(RowIQ2_XXS) == 66 && sizeof(RowIQ2_XS) == 74 && sizeof(RowIQ2_S) == 82);
static_assert(sizeof(RowIQ3_XXS) == 98 && sizeof(RowIQ3_S) == 110 && sizeof(RowIQ4_XS) == 136);
static_assert(sizeof(RowIQ4_NL) == 18 && sizeof(RowMXFP4) == 17 && sizeof(RowNVFP4) == 36);

// Weights and bytes of a block; {0, 0} for what is not supported.
struct BlockSize { int weights, bytes; };
constexpr BlockSize file_block(int format) {
  switch (format) {
    case F32: return {1, 4};
    case F16:
    case BF16: return {1, 2};
    case Q8_0: return {32, sizeof(RowQ8_0)};
    case Q4_0: return {32, sizeof(RowQ4_0)};
    case Q4_1: return {32, sizeof(RowQ4_1)};
    case Q5_0: return {32, sizeof(RowQ5_0)};
    case Q5_1: return {32, sizeof(RowQ5_1)};
    case IQ4_NL: return {32, sizeof(RowIQ4_NL)};
    case MXFP4: return {32, sizeof(RowMXFP4)};
    case NVFP4: return {64, sizeof(RowNVFP4)};
    case Q2_K: return {256, sizeof(RowQ2_K)};
    case Q3_K: return {256, sizeof(RowQ3_K)};
    case Q4_K: return {256, sizeof(RowQ4_K)};
    case Q5_K: return {256, sizeof(RowQ5_K)};
    case Q6_K: return {256, sizeof(RowQ6_K)};
    case TQ1_0: return {256, sizeof(RowTQ1_0)};
    case TQ2_0: return {256, sizeof(RowTQ2_0)};
    case IQ1_S: return {256, sizeof(RowIQ1_S)};
    case IQ1_M: return {256, sizeof(RowIQ1_M)};
    case IQ2_XXS: return {256, sizeof(RowIQ2_XXS)};
    case IQ2_XS: return {256, sizeof(RowIQ2_XS)};
    case IQ2_S: return {256, sizeof(RowIQ2_S)};
    case IQ3_XXS: return {256, sizeof(RowIQ3_XXS)};
    case IQ3_S: return {256, sizeof(RowIQ3_S)};
    case IQ4_XS: return {256, sizeof(RowIQ4_XS)};
    case F8: return {128, sizeof(RowF8)};
    case I4: return {32, sizeof(RowI4)};
    case E4M3: return {1, 1};
    default: return {0, 0};
  }
}

template <class To, class From>
inline To read_as(const From* from) {
  To to;
  std::memcpy(&to, from, sizeof(To));
  return to;
}

inline float half_to_float(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000) << 16;
  const uint32_t magnitude = h & 0x7fff;
  uint32_t bits;
  if (magnitude >= 0x7c00) {  // infinity, NaN
    bits = sign | 0x7f800000 | (magnitude & 0x3ff) << 13;
  } else if (magnitude >= 0x400) {
    bits = sign | ((magnitude << 13) + 0x38000000);
  } else {  // zero, subnormal: a multiple of 2^-24
    const float value = float(magnitude) * 0x1p-24f;
    bits = sign | read_as<uint32_t>(&value);
  }
  return read_as<float>(&bits);
}

inline float half_at(const uint8_t* p) { return half_to_float(read_as<uint16_t>(p)); }

// An E4M3 byte is the middle of an f16 that is 256 times less (NaN counts as 480).
inline float e4m3_at(const uint8_t* p) {
  return half_to_float(uint16_t((*p & 0x7f) << 7 | (*p & 0x80) << 8)) * 256.0f;
}

inline float bf16_at(const uint8_t* p) {
  const uint32_t bits = uint32_t(read_as<uint16_t>(p)) << 16;
  return read_as<float>(&bits);
}

// The scale of an MXFP4 block, half of 2^(e - 127): its values are whole numbers, doubled. The
// upper half of the float holds it, as a bf16.
inline float e8m0_half(uint8_t e) {
  const uint32_t bits = e < 2 ? uint32_t(0x00200000) << e : uint32_t(e - 1) << 23;
  return read_as<float>(&bits);
}

// The scale of an NVFP4 sub-block, half of an E4M3 without a sign: the upper bit does not count,
// 0x7f is zero. An f16 holds it.
inline float ue4m3_half(uint8_t x) {
  const int exponent = x >> 3 & 15, mantissa = x & 7;
  if (x == 0x7f) return 0;
  if (exponent == 0) return float(mantissa) * 0x1p-10f;
  const uint32_t bits = uint32_t(exponent + 119) << 23 | uint32_t(mantissa) << 20;
  return read_as<float>(&bits);
}

// The 6-bit scale and minimum of sub-block j (0..7) of a Q4_K or Q5_K block.
inline void sub_scale(const uint8_t* scales, int j, uint8_t& scale, uint8_t& minimum) {
  if (j < 4) {
    scale = scales[j] & 63;
    minimum = scales[j + 4] & 63;
  } else {
    scale = (scales[j + 4] & 15) | (scales[j - 4] >> 6) << 4;
    minimum = scales[j + 4] >> 4 | (scales[j] >> 6) << 4;
  }
}

}  // namespace strata
