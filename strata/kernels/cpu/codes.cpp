// The bytes of each format into codes. Layouts: gguf_rows.h; meaning: ggml-common.h and the
// `dequantize_blocks` of the `gguf` package, whose results these give bit for bit.
#include "codes.h"

#include "gguf_rows.h"

namespace strata {

const int8_t kValuesNL[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                              1,    13,   25,  38,  53,  69,  89,  113};
const int8_t kValuesFP4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

namespace {

// Evenly spaced values ascend with their codes (layout.h). Of the other codes made of a point
// and signs, the uppermost bit is the sign.
constexpr int8_t kPlain[4] = {0, 1, 2, 3};
constexpr int8_t kEighths[4] = {0, 8, 16, 0};                      // IQ1_S
constexpr int8_t kEighthsM[8] = {-7, -9, 1, -1, 9, 7, 0, 0};       // IQ1_M: 8 (q - 1) +- 1
constexpr int8_t kSigned[8] = {-4, -3, -2, -1, 0, 1, 2, 3};        // Q3_K
constexpr int8_t kIQ2[8] = {8, 25, 43, 0, -8, -25, -43, 0};
constexpr int8_t kIQ3_XXS[16] = {4,  12,  20,  28,  36,  44,  52,  62,
                                 -4, -12, -20, -28, -36, -44, -52, -62};
constexpr int8_t kIQ3_S[16] = {-15, -13, -11, -9, -7, -5, -3, -1,
                               1,   3,   5,   7,  9,  11, 13, 15};

struct Kind {
  int bits;
  const int8_t* values;
  float unit;
  bool shifted;
};

constexpr Kind kind_of(int format) {
  switch (format) {
    case Q2_K: return {2, kPlain, 1, false};
    case TQ1_0:
    case TQ2_0: return {2, kPlain, 1, true};
    case IQ1_S: return {2, kEighths, 0.125f, true};
    case IQ1_M: return {3, kEighthsM, 0.125f, false};
    case Q3_K: return {3, kSigned, 1, false};
    case IQ2_XXS:
    case IQ2_XS:
    case IQ2_S: return {3, kIQ2, 0.125f, false};
    case IQ3_XXS: return {4, kIQ3_XXS, 0.25f, false};
    case IQ3_S: return {4, kIQ3_S, 1, false};
    case IQ4_XS: return {4, kValuesNL, 1, false};
    default: return {0, nullptr, 0, false};
  }
}

// ------------------------------------------------------------------ grids
// The points of a format, each `width` bytes, one coordinate in each.

template <class Point, int n, int coordinate_mask>
struct Grid {
  static constexpr int width = sizeof(Point);
  Point points[n];
  bool set;

  Point at(unsigned i) const { return points[i % n]; }
  void assign(const uint8_t* from) {
    uint8_t* to = reinterpret_cast<uint8_t*>(points);
    for (size_t i = 0; i < sizeof points; ++i) to[i] = from[i] & coordinate_mask;
    set = true;
  }
};

Grid<uint64_t, 2048, 3> iq1;
Grid<uint64_t, 256, 3> iq2_xxs;
Grid<uint64_t, 512, 3> iq2_xs;
Grid<uint64_t, 1024, 3> iq2_s;
Grid<uint32_t, 256, 7> iq3_xxs;
Grid<uint32_t, 512, 7> iq3_s;

// What `with` makes of the grid of a format, or `none` where it has none.
template <class With, class Result>
Result with_grid(int format, With with, Result none) {
  switch (format) {
    case IQ1_S:
    case IQ1_M: return with(iq1);
    case IQ2_XXS: return with(iq2_xxs);
    case IQ2_XS: return with(iq2_xs);
    case IQ2_S: return with(iq2_s);
    case IQ3_XXS: return with(iq3_xxs);
    case IQ3_S: return with(iq3_s);
    default: return none;
  }
}

// Byte i is bit i of `bits`.
uint64_t spread(uint8_t bits) {
  const uint64_t apart = bits * 0x0101010101010101ull & 0x8040201008040201ull;
  return (apart + 0x7f7f7f7f7f7f7f7full) >> 7 & 0x0101010101010101ull;
}

// Seven signs, and an eighth that makes their number even.
uint8_t even_signs(unsigned seven) {
  seven &= 127;
  unsigned odd = seven ^ seven >> 4;
  odd ^= odd >> 2;
  odd ^= odd >> 1;
  return uint8_t(seven | (odd & 1) << 7);
}

void put(uint8_t* code, uint64_t eight) { std::memcpy(code, &eight, 8); }

uint16_t u16(const uint8_t* p) { return read_as<uint16_t>(p); }
uint32_t u32(const uint8_t* p) { return read_as<uint32_t>(p); }

// Scales of 32 or 16 weights: odd numbers, 2 s + 1.
void odd_pair(Codes& out, int j, unsigned s) {
  out.scale[2 * j] = out.scale[2 * j + 1] = int8_t(2 * (s & 15) + 1);
}
void odd_nibbles(Codes& out, const uint8_t* scales) {
  for (int j = 0; j < 16; ++j) {
    out.scale[j] = int8_t(2 * (scales[j / 2] >> j % 2 * 4 & 15) + 1);
  }
}

void begin(Codes& out, const uint8_t* d) {
  std::memset(out.minimum, 0, sizeof out.minimum);
  out.d = u16(d);
  out.dmin = 0;
}

// ------------------------------------------------------------------ blocks

// Bytes l of two runs of 32 hold weights l, 32 + l, 64 + l, 96 + l of a half, from the lowest
// bits on.
void pairs(Codes& out, const uint8_t* q) {
  for (int half = 0; half < 2; ++half) {
    for (int g = 0; g < 4; ++g) {
      uint8_t* code = out.code + 128 * half + 32 * g;
      for (int l = 0; l < 32; ++l) code[l] = q[32 * half + l] >> 2 * g & 3;
    }
  }
}

void read(const RowQ2_K& b, Codes& out) {
  pairs(out, b.q);
  for (int j = 0; j < 16; ++j) {
    out.scale[j] = int8_t(b.scales[j] & 15);
    out.minimum[j] = b.scales[j] >> 4;
  }
  out.d = u16(b.d);
  out.dmin = u16(b.dmin);
}

// bits: bit g of byte l is the third of weight 32 g + l. Scales: low nibbles, then high ones,
// of 8 bytes; upper two bits of j in byte 8 + j % 4.
void read(const RowQ3_K& b, Codes& out) {
  begin(out, b.d);
  pairs(out, b.q);
  for (int g = 0; g < 8; ++g) {
    for (int l = 0; l < 32; ++l) out.code[32 * g + l] |= (b.bits[l] >> g & 1) << 2;
  }
  for (int j = 0; j < 16; ++j) {
    const int low = b.scales[j % 8] >> j / 8 * 4 & 15;
    out.scale[j] = int8_t((low | (b.scales[8 + j % 4] >> j / 4 * 2 & 3) << 4) - 32);
  }
}

// Codes less one, times d.
void ternary(Codes& out, const uint8_t* d) {
  out.d = out.dmin = u16(d);
  std::memset(out.scale, 1, sizeof out.scale);
  std::memset(out.minimum, 1, sizeof out.minimum);
}

// Digits of base three of a fraction: byte l of a run is weights l, run + l, 2 run + l ...
void digits(const uint8_t* q, int run, int count, uint8_t* code) {
  for (int p = 0, power = 1; p < count; ++p, power *= 3) {
    for (int l = 0; l < run; ++l) code[p * run + l] = uint8_t(q[l] * power) * 3 >> 8;
  }
}

void read(const RowTQ1_0& b, Codes& out) {
  ternary(out, b.d);
  digits(b.q, 32, 5, out.code);
  digits(b.q + 32, 16, 5, out.code + 160);
  digits(b.last, 4, 4, out.code + 240);
}

void read(const RowTQ2_0& b, Codes& out) {
  ternary(out, b.d);
  pairs(out, b.q);
}

// Of each 32 weights a word: three more bits of each of four points, the scale, and the sign of
// the eighth that is added to all.
void read(const RowIQ1_S& b, Codes& out) {
  out.d = out.dmin = u16(b.d);
  for (int j = 0; j < 8; ++j) {
    const unsigned word = u16(b.high + 2 * j), s = 2 * (word >> 12 & 7) + 1;
    for (int l = 0; l < 4; ++l) {
      const unsigned point = b.q[4 * j + l] | (word >> 3 * l & 7) << 8;
      put(out.code + 32 * j + 8 * l, iq1.at(point));
    }
    out.scale[2 * j] = out.scale[2 * j + 1] = int8_t(s);
    out.minimum[2 * j] = out.minimum[2 * j + 1] = uint8_t(s * (word & 0x8000 ? 9 : 7));
  }
}

// A nibble of each 8 weights: three more bits of the point, and the eighth's sign. d lies in the
// upper nibbles of the four words of scales.
void read(const RowIQ1_M& b, Codes& out) {
  uint8_t d[2];
  d[0] = uint8_t(b.scales[1] >> 4 | (b.scales[3] & 0xf0));
  d[1] = uint8_t(b.scales[5] >> 4 | (b.scales[7] & 0xf0));
  begin(out, d);
  for (int g = 0; g < 32; ++g) {
    const unsigned nibble = b.high[g / 2] >> g % 2 * 4;
    // Without a branch, which would be guessed wrong half the time.
    const uint64_t sign = (nibble >> 3 & 1) * 0x0101010101010101ull;
    put(out.code + 8 * g, iq1.at(b.q[g] | (nibble & 7) << 8) << 1 | sign);
  }
  for (int j = 0; j < 16; ++j) {
    out.scale[j] = int8_t(2 * (u16(b.scales + j / 4 * 2) >> j % 4 * 3 & 7) + 1);
  }
}

// Of each 32 weights four points and a word: four times seven signs, then the scale.
void read(const RowIQ2_XXS& b, Codes& out) {
  begin(out, b.d);
  for (int j = 0; j < 8; ++j) {
    const uint32_t word = u32(b.q + 8 * j + 4);
    for (int l = 0; l < 4; ++l) {
      const uint64_t signs = spread(even_signs(word >> 7 * l)) << 2;
      put(out.code + 32 * j + 8 * l, iq2_xxs.at(b.q[8 * j + l]) | signs);
    }
    odd_pair(out, j, word >> 28);
  }
}

// A word of each 8 weights: nine bits of the point, seven signs.
void read(const RowIQ2_XS& b, Codes& out) {
  begin(out, b.d);
  for (int g = 0; g < 32; ++g) {
    const unsigned word = u16(b.q + 2 * g);
    put(out.code + 8 * g, iq2_xs.at(word) | spread(even_signs(word >> 9)) << 2);
  }
  odd_nibbles(out, b.scales);
}

void read(const RowIQ2_S& b, Codes& out) {
  begin(out, b.d);
  for (int g = 0; g < 32; ++g) {
    const unsigned point = b.q[g] | (b.high[g / 4] >> g % 4 * 2 & 3) << 8;
    put(out.code + 8 * g, iq2_s.at(point) | spread(b.signs[g]) << 2);
  }
  odd_nibbles(out, b.scales);
}

void read(const RowIQ3_XXS& b, Codes& out) {
  begin(out, b.d);
  for (int g = 0; g < 32; ++g) {
    const uint32_t word = u32(b.signs + g / 4 * 4);
    const uint64_t low = iq3_xxs.at(b.q[2 * g]), high = iq3_xxs.at(b.q[2 * g + 1]);
    put(out.code + 8 * g, low | high << 32 | spread(even_signs(word >> g % 4 * 7)) << 3);
    odd_pair(out, g / 4, word >> 28);
  }
}

void read(const RowIQ3_S& b, Codes& out) {
  begin(out, b.d);
  for (int g = 0; g < 32; ++g) {
    const unsigned bits = b.high[g / 4] >> g % 4 * 2;  // a ninth bit of each of two points
    const uint64_t low = iq3_s.at(b.q[2 * g] | (bits & 1) << 8);
    const uint64_t high = iq3_s.at(b.q[2 * g + 1] | (bits >> 1 & 1) << 8);
    const uint64_t positive = low | high << 32 | 0x0808080808080808ull;
    put(out.code + 8 * g, positive ^ spread(b.signs[g]) * 15);
  }
  for (int j = 0; j < 8; ++j) odd_pair(out, j, b.scales[j / 2] >> j % 2 * 4);
}

void read(const RowIQ4_XS& b, Codes& out) {
  begin(out, b.d);
  for (int j = 0; j < 8; ++j) {
    for (int i = 0; i < 16; ++i) {
      out.code[32 * j + i] = b.q[16 * j + i] & 15;
      out.code[32 * j + 16 + i] = b.q[16 * j + i] >> 4;
    }
    const int low = b.scales[j / 2] >> j % 2 * 4 & 15;
    const int scale = (low | (u16(b.high) >> 2 * j & 3) << 4) - 32;
    out.scale[2 * j] = out.scale[2 * j + 1] = int8_t(scale);
  }
}

template <class Row>
void read_as_row(const void* block, Codes& out) {
  read(*static_cast<const Row*>(block), out);  // all members are bytes: any alignment
}

}  // namespace

int code_bits(int format) { return kind_of(format).bits; }
const int8_t* code_values(int format) { return kind_of(format).values; }
float code_unit(int format) { return kind_of(format).unit; }
float code_unit_min(int format) { return codes_shifted(format) ? code_unit(format) : 1; }
bool codes_shifted(int format) { return kind_of(format).shifted; }

size_t grid_bytes(int format) {
  return with_grid(format, [](auto& grid) { return sizeof grid.points; }, size_t(0));
}

bool grid_missing(int format) {
  return with_grid(format, [](auto& grid) { return !grid.set; }, false);
}

void set_grid(int format, const uint8_t* coordinates) {
  with_grid(format, [&](auto& grid) { grid.assign(coordinates); return 0; }, 0);
}

void read_codes(int format, const void* block, Codes& out) {
  switch (format) {
    case Q2_K: return read_as_row<RowQ2_K>(block, out);
    case Q3_K: return read_as_row<RowQ3_K>(block, out);
    case TQ1_0: return read_as_row<RowTQ1_0>(block, out);
    case TQ2_0: return read_as_row<RowTQ2_0>(block, out);
    case IQ1_S: return read_as_row<RowIQ1_S>(block, out);
    case IQ1_M: return read_as_row<RowIQ1_M>(block, out);
    case IQ2_XXS: return read_as_row<RowIQ2_XXS>(block, out);
    case IQ2_XS: return read_as_row<RowIQ2_XS>(block, out);
    case IQ2_S: return read_as_row<RowIQ2_S>(block, out);
    case IQ3_XXS: return read_as_row<RowIQ3_XXS>(block, out);
    case IQ3_S: return read_as_row<RowIQ3_S>(block, out);
    case IQ4_XS: return read_as_row<RowIQ4_XS>(block, out);
    default: return;
  }
}

}  // namespace strata
