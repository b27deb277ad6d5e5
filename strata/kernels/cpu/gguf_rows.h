// The blocks of GGUF rows as they lie in a file, and f16 / bf16 to float.
// The layouts are documented in strata/kernels/quant.py.
#pragma once
#include <cstdint>
#include <cstring>

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
static_assert(sizeof(RowQ8_0) == 34 && sizeof(RowQ4_0) == 18 && sizeof(RowQ4_1) == 20);
static_assert(sizeof(RowQ5_0) == 22 && sizeof(RowQ5_1) == 24 && sizeof(RowQ4_K) == 144);
static_assert(sizeof(RowQ5_K) == 176 && sizeof(RowQ6_K) == 210);

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
