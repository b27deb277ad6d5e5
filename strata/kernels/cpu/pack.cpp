// GGUF rows into interleaved tiles: a permutation of the file's bytes (layout.h).
#include <array>

#include "isa.h"
#include "kernels.h"
#include "layout.h"
#include "gguf_rows.h"
#include "pack.h"

namespace strata {

const KernelTable& active_table();

namespace {

// What each format has besides its runs, row by row: scales, and bits in another order than the
// file's. And the runs, which are most of it. `second`: the block's place in its group, or in the
// file's block, 0 or 1.

// Bit i of the file's word is weight i's; here bit u of byte j is weight 4 u + j's.
void fifth_bits(const Tile& tile, int u, int r, const uint8_t* from) {
  const uint32_t word = read_as<uint32_t>(from);
  uint8_t bytes[4];
  for (int j = 0; j < 4; ++j) {  // every fourth bit, drawn together in steps
    uint32_t bits = word >> j & 0x11111111;
    bits = (bits | bits >> 3) & 0x03030303;
    bits = (bits | bits >> 6) & 0x000f000f;
    bytes[j] = uint8_t(bits | bits >> 12);
  }
  tile.four(u, r, bytes);
}

void pack_rest(const Tile& t, const RowQ8_0& b, int r, int second) { t.half(second, r, b.d); }
std::array<Run, 1> runs(const RowQ8_0&, int second) {
  return {{{1 + 8 * second, 1, offsetof(RowQ8_0, q), 8}}};
}

void pack_rest(const Tile& t, const RowQ4_0& b, int r, int second) { t.half(second, r, b.d); }
std::array<Run, 1> runs(const RowQ4_0&, int second) {
  return {{{1 + 4 * second, 1, offsetof(RowQ4_0, q), 4}}};
}

void pack_rest(const Tile& t, const RowIQ4_NL& b, int r, int second) { t.half(second, r, b.d); }
std::array<Run, 1> runs(const RowIQ4_NL&, int second) {
  return {{{1 + 4 * second, 1, offsetof(RowIQ4_NL, q), 4}}};
}

// The scale of an MXFP4 block as bf16, of NVFP4 ones as f16, which hold them exactly.
uint16_t upper_half(float x) { return uint16_t(read_as<uint32_t>(&x) >> 16); }
uint16_t small_half(float x) {  // a multiple of 2^-10 with four bits, below 256
  return x == 0 ? 0 : uint16_t((read_as<uint32_t>(&x) >> 13) - (112 << 10));
}

void pack_rest(const Tile& t, const RowMXFP4& b, int r, int second) {
  const uint16_t d = upper_half(e8m0_half(b.e));
  t.half(second, r, &d);
}
std::array<Run, 1> runs(const RowMXFP4&, int second) {
  return {{{1 + 4 * second, 1, offsetof(RowMXFP4, q), 4}}};
}

void pack_rest(const Tile& t, const RowNVFP4& b, int r, int second) {
  for (int i = 0; i < 2; ++i) {
    const uint16_t d = small_half(ue4m3_half(b.scales[2 * second + i]));
    t.half(i, r, &d);
  }
}
std::array<Run, 1> runs(const RowNVFP4&, int second) {
  return {{{1, 1, offsetof(RowNVFP4, q) + 16 * size_t(second), 4}}};
}

void pack_rest(const Tile& t, const RowQ5_0& b, int r, int second) {
  t.half(second, r, b.d);
  fifth_bits(t, 1 + 5 * second, r, b.bits);
}
std::array<Run, 1> runs(const RowQ5_0&, int second) {
  return {{{2 + 5 * second, 1, offsetof(RowQ5_0, q), 4}}};
}

void pack_rest(const Tile& t, const RowQ4_1& b, int r, int) {
  t.half(0, r, b.d);
  t.half(1, r, b.m);
}
std::array<Run, 1> runs(const RowQ4_1&, int) { return {{{1, 1, offsetof(RowQ4_1, q), 4}}}; }

void pack_rest(const Tile& t, const RowQ5_1& b, int r, int) {
  t.half(0, r, b.d);
  t.half(1, r, b.m);
  fifth_bits(t, 1, r, b.bits);
}
std::array<Run, 1> runs(const RowQ5_1&, int) { return {{{2, 1, offsetof(RowQ5_1, q), 4}}}; }

// The header, the scales after it, and the minima in units `last` and `last` + 1.
template <class Row>
void sub_scales(const Tile& t, const Row& b, int r, int last) {
  uint8_t* scales = t.at + size_t(4) * t.rows;
  uint8_t* minima = t.at + size_t(last) * 4 * t.rows;
  t.half(0, r, b.d);
  t.half(1, r, b.dmin);
  for (int j = 0; j < 8; ++j) {
    sub_scale(b.scales, j, scales[j * t.rows + r], minima[(j / 2 * t.rows + r) * 2 + j % 2]);
  }
}
void pack_rest(const Tile& t, const RowQ4_K& b, int r, int) { sub_scales(t, b, r, 35); }
std::array<Run, 1> runs(const RowQ4_K&, int) { return {{{3, 1, offsetof(RowQ4_K, q), 32}}}; }

void pack_rest(const Tile& t, const RowQ5_K& b, int r, int) { sub_scales(t, b, r, 43); }
std::array<Run, 3> runs(const RowQ5_K&, int) {
  return {{{3, 2, offsetof(RowQ5_K, bits), 8},
           {4, 2, offsetof(RowQ5_K, q), 8},
           {19, 1, offsetof(RowQ5_K, q) + 32, 24}}};
}
void pack_rest(const Tile& t, const RowF8& b, int r, int) {
  t.four(0, r, b.d);
  for (int i = 0; i < 128; ++i) t.at[size_t(4 + i) * t.rows + r] = b.q[i];
}
std::array<Run, 0> runs(const RowF8&, int) { return {}; }

void pack_rest(const Tile& t, const RowI4& b, int r, int) { t.four(0, r, b.head); }
std::array<Run, 1> runs(const RowI4&, int) { return {{{1, 1, offsetof(RowI4, q), 4}}}; }

void pack_rest(const Tile& t, const RowQ6_K& b, int r, int) {
  t.half(0, r, b.d);
  for (int pair = 0; pair < 8; ++pair) {
    uint8_t* scales = t.at + size_t(1 + 26 * (pair / 4)) * 4 * t.rows;
    std::memcpy(scales + (pair % 4 * t.rows + r) * 2, b.scales + 2 * pair, 2);
  }
}
std::array<Run, 6> runs(const RowQ6_K&, int) {
  constexpr size_t q = offsetof(RowQ6_K, q), bits = offsetof(RowQ6_K, bits);
  return {{{3, 2, bits, 8}, {4, 2, q, 8}, {19, 1, q + 32, 8},
           {29, 2, bits + 32, 8}, {30, 2, q + 64, 8}, {45, 1, q + 96, 8}}};
}

// One tile: `valid` rows from `from`, zeros for the others. pack_one(tile, block, b) packs block b
// of all of them, the first row's at `block`.
template <class PackOne>
void pack_blocks(int format, const uint8_t* from, int k, int rows, uint8_t* to, PackOne pack_one) {
  const BlockLayout layout = block_layout(format);
  const int each = block_size(format) / layout.block;  // 2 where the file's are twice as long
  std::memset(to, 0, tile_bytes(format, k, rows));
  for (int b = 0; b < k / layout.block; ++b) {
    const Tile tile{to + size_t(b / layout.group) * layout.units * 4 * rows, rows};
    pack_one(tile, from + b / each * row_bytes(format, block_size(format)),
             b % (each * layout.group));
  }
}

// The bits of `flip` are turned over in what comes in runs.
template <class Row>
void pack_tile(int format, const uint8_t* from, int valid, int k, int rows, uint8_t* to,
               uint32_t flip = 0) {
  const size_t stride = row_bytes(format, k);
  pack_blocks(format, from, k, rows, to, [&](const Tile& tile, const uint8_t* block, int second) {
    for (int r = 0; r < valid; ++r) {
      pack_rest(tile, *reinterpret_cast<const Row*>(block + r * stride), r, second);
    }
    for (const Run& run : runs(Row(), second)) tile.run(run, block, stride, valid, flip);
  });
}

void pack_coded(int format, const uint8_t* from, int valid, int k, int rows, uint8_t* to) {
  const size_t stride = row_bytes(format, k);
  pack_blocks(format, from, k, rows, to, [&](const Tile& tile, const uint8_t* block, int) {
    for (int r = 0; r < valid; ++r) pack_codes(format, tile, block + r * stride, r);
  });
}

// Values of two or four bytes, in squares as far as they go.
template <class Value>
void pack_plain(const uint8_t* from, int valid, int k, int rows, uint8_t* to) {
  constexpr int square = kSquare<Value>, width = sizeof(Value);
  const int high = valid / square * square, wide = k / square * square;
  std::memset(to, 0, size_t(k) * rows * width);
  for (int i = 0; i < wide; i += square) {
    for (int r = 0; r < high; r += square) {
      transpose<Value>(from + (size_t(r) * k + i) * width, size_t(k) * width,
                       to + (size_t(i) * rows + r) * width, size_t(rows) * width);
    }
  }
  for (int r = 0; r < valid; ++r) {
    for (int i = r < high ? wide : 0; i < k; ++i) {
      std::memcpy(to + (size_t(i) * rows + r) * width, from + (size_t(r) * k + i) * width, width);
    }
  }
}

void pack_any(int format, const uint8_t* from, int valid, int k, const KernelTable& isa,
              uint8_t* to) {
  const int rows = isa.tile_rows;
  switch (format) {
    case F32: pack_plain<uint32_t>(from, valid, k, rows, to); break;
    case F16:
    case BF16: pack_plain<uint16_t>(from, valid, k, rows, to); break;
    case Q8_0:
      pack_tile<RowQ8_0>(format, from, valid, k, rows, to, isa.offset_q8 ? 0x80808080 : 0);
      break;
    case Q4_0: pack_tile<RowQ4_0>(format, from, valid, k, rows, to); break;
    case Q4_1: pack_tile<RowQ4_1>(format, from, valid, k, rows, to); break;
    case Q5_0: pack_tile<RowQ5_0>(format, from, valid, k, rows, to); break;
    case Q5_1: pack_tile<RowQ5_1>(format, from, valid, k, rows, to); break;
    case Q4_K: pack_tile<RowQ4_K>(format, from, valid, k, rows, to); break;
    case Q5_K: pack_tile<RowQ5_K>(format, from, valid, k, rows, to); break;
    case Q6_K: pack_tile<RowQ6_K>(format, from, valid, k, rows, to); break;
    case F8: pack_tile<RowF8>(format, from, valid, k, rows, to); break;
    case I4: pack_tile<RowI4>(format, from, valid, k, rows, to); break;
    case IQ4_NL: pack_tile<RowIQ4_NL>(format, from, valid, k, rows, to); break;
    case MXFP4: pack_tile<RowMXFP4>(format, from, valid, k, rows, to); break;
    case NVFP4: pack_tile<RowNVFP4>(format, from, valid, k, rows, to); break;
    default: pack_coded(format, from, valid, k, rows, to);
  }
}

}  // namespace

void pack(int format, const void* gguf_rows, int n, int k, uint8_t* tiles,
          [[maybe_unused]] int threads) {
  const KernelTable& isa = active_table();
  const uint8_t* from = static_cast<const uint8_t*>(gguf_rows);
  const size_t row = row_bytes(format, k), size = tile_bytes(format, k, isa.tile_rows);
  const int count = (n + isa.tile_rows - 1) / isa.tile_rows;
  // Threads side by side in the file, so that it is read from front to back.
  [[maybe_unused]] const int chunk = int((1 << 18) / size) + 1;
#pragma omp parallel for schedule(dynamic, chunk) num_threads(threads) if (count > chunk)
  for (int i = 0; i < count; ++i) {
    const int first = i * isa.tile_rows;
    const int valid = n - first < isa.tile_rows ? n - first : isa.tile_rows;
    pack_any(format, from + first * row, valid, k, isa, tiles + i * size);
  }
}

}  // namespace strata
