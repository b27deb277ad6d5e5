// GGUF rows into interleaved tiles: a permutation of the file's bytes (layout.h).
#include "isa.h"
#include "kernels.h"
#include "layout.h"
#include "gguf_rows.h"
#include "pack.h"

namespace strata {

const KernelTable& active_table();

namespace {

// Bit i of the file's word is weight i's; here bit u of byte j is weight 4 u + j's.
void fifth_bits(const Tile& tile, int u, int r, const uint8_t* from) {
  const uint32_t word = read_as<uint32_t>(from);
  uint8_t bytes[4] = {};
  for (int i = 0; i < 32; ++i) bytes[i % 4] |= (word >> i & 1) << (i / 4);
  tile.four(u, r, bytes);
}

// The scale of an MXFP4 block as bf16, of NVFP4 ones as f16, which hold them exactly.
uint16_t upper_half(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return uint16_t(bits >> 16);
}
uint16_t small_half(float x) {  // a multiple of 2^-10 with four bits, below 256
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return x == 0 ? 0 : uint16_t((bits >> 13) - (112 << 10));
}

// `second`: the block's place in its group, or in the file's block, 0 or 1.
void pack_block(const Tile& t, const RowQ8_0& b, int r, int second, bool offset) {
  uint8_t q[32];
  for (int i = 0; i < 32; ++i) q[i] = uint8_t(b.q[i]) ^ (offset ? 0x80 : 0);
  t.half(second, r, b.d);
  t.units(1 + 8 * second, r, q, 8);
}
void pack_block(const Tile& t, const RowQ4_0& b, int r, int second, bool) {
  t.half(second, r, b.d);
  t.units(1 + 4 * second, r, b.q, 4);
}
void pack_block(const Tile& t, const RowIQ4_NL& b, int r, int second, bool) {
  t.half(second, r, b.d);
  t.units(1 + 4 * second, r, b.q, 4);
}
void pack_block(const Tile& t, const RowMXFP4& b, int r, int second, bool) {
  const uint16_t d = upper_half(e8m0_half(b.e));
  t.half(second, r, &d);
  t.units(1 + 4 * second, r, b.q, 4);
}
void pack_block(const Tile& t, const RowNVFP4& b, int r, int second, bool) {
  for (int i = 0; i < 2; ++i) {
    const uint16_t d = small_half(ue4m3_half(b.scales[2 * second + i]));
    t.half(i, r, &d);
  }
  t.units(1, r, b.q + 16 * second, 4);
}
void pack_block(const Tile& t, const RowQ5_0& b, int r, int second, bool) {
  t.half(second, r, b.d);
  fifth_bits(t, 1 + 5 * second, r, b.bits);
  t.units(2 + 5 * second, r, b.q, 4);
}
void pack_block(const Tile& t, const RowQ4_1& b, int r, int, bool) {
  t.half(0, r, b.d);
  t.half(1, r, b.m);
  t.units(1, r, b.q, 4);
}
void pack_block(const Tile& t, const RowQ5_1& b, int r, int, bool) {
  t.half(0, r, b.d);
  t.half(1, r, b.m);
  fifth_bits(t, 1, r, b.bits);
  t.units(2, r, b.q, 4);
}

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
void pack_block(const Tile& t, const RowQ4_K& b, int r, int, bool) {
  sub_scales(t, b, r, 35);
  t.units(3, r, b.q, 32);
}
void pack_block(const Tile& t, const RowQ5_K& b, int r, int, bool) {
  sub_scales(t, b, r, 43);
  for (int u = 0; u < 8; ++u) {
    t.four(3 + 2 * u, r, b.bits + 4 * u);
    t.four(4 + 2 * u, r, b.q + 4 * u);
  }
  t.units(19, r, b.q + 32, 24);
}
void pack_block(const Tile& t, const RowQ6_K& b, int r, int, bool) {
  t.half(0, r, b.d);
  for (int half = 0; half < 2; ++half) {
    const int first = 1 + 26 * half;
    const uint8_t *q = b.q + 64 * half, *bits = b.bits + 32 * half;
    uint8_t* scales = t.at + size_t(first) * 4 * t.rows;
    for (int j = 0; j < 4; ++j) {
      std::memcpy(scales + (j * t.rows + r) * 2, b.scales + 8 * half + 2 * j, 2);
    }
    for (int u = 0; u < 8; ++u) {
      t.four(first + 2 + 2 * u, r, bits + 4 * u);
      t.four(first + 3 + 2 * u, r, q + 4 * u);
    }
    t.units(first + 18, r, q + 32, 8);
  }
}
void pack_block(const Tile& t, const RowF8& b, int r, int, bool) {
  t.four(0, r, b.d);
  for (int i = 0; i < 128; ++i) t.at[size_t(4 + i) * t.rows + r] = b.q[i];
}
void pack_block(const Tile& t, const RowI4& b, int r, int, bool) {
  t.four(0, r, b.head);
  t.units(1, r, b.q, 4);
}

// One tile: `valid` rows from `from`, zeros for the others. pack_one(tile, row, b, r) packs block b.
template <class PackOne>
void pack_blocks(int format, const uint8_t* from, int valid, int k, int rows, uint8_t* to,
                 PackOne pack_one) {
  const BlockLayout layout = block_layout(format);
  const size_t row_size = row_bytes(format, k);
  std::memset(to, 0, tile_bytes(format, k, rows));
  for (int b = 0; b < k / layout.block; ++b) {
    const Tile tile{to + size_t(b / layout.group) * layout.units * 4 * rows, rows};
    for (int r = 0; r < valid; ++r) pack_one(tile, from + r * row_size, b, r);
  }
}

template <class Row>
void pack_tile(int format, const uint8_t* from, int valid, int k, const KernelTable& isa,
               uint8_t* to) {
  const int each = block_size(format) / block_layout(format).block;  // 2 where the file's are twice
  const int group = each * block_layout(format).group;
  pack_blocks(format, from, valid, k, isa.tile_rows, to,
              [&](const Tile& tile, const uint8_t* row, int b, int r) {
                const Row* blocks = reinterpret_cast<const Row*>(row);
                pack_block(tile, blocks[b / each], r, b % group, isa.offset_q8);
              });
}

void pack_coded(int format, const uint8_t* from, int valid, int k, int rows, uint8_t* to) {
  const size_t bytes = row_bytes(format, 256);
  pack_blocks(format, from, valid, k, rows, to,
              [&](const Tile& tile, const uint8_t* row, int b, int r) {
                pack_codes(format, tile, row + b * bytes, r);
              });
}

void pack_plain(int width, const uint8_t* from, int valid, int k, int rows, uint8_t* to) {
  std::memset(to, 0, size_t(k) * rows * width);
  for (int r = 0; r < valid; ++r) {
    const uint8_t* row = from + size_t(r) * k * width;
    for (int i = 0; i < k; ++i) {
      std::memcpy(to + (size_t(i) * rows + r) * width, row + size_t(i) * width, width);
    }
  }
}

void pack_any(int format, const uint8_t* from, int valid, int k, const KernelTable& isa,
              uint8_t* to) {
  switch (format) {
    case F32: pack_plain(4, from, valid, k, isa.tile_rows, to); break;
    case F16:
    case BF16: pack_plain(2, from, valid, k, isa.tile_rows, to); break;
    case Q8_0: pack_tile<RowQ8_0>(format, from, valid, k, isa, to); break;
    case Q4_0: pack_tile<RowQ4_0>(format, from, valid, k, isa, to); break;
    case Q4_1: pack_tile<RowQ4_1>(format, from, valid, k, isa, to); break;
    case Q5_0: pack_tile<RowQ5_0>(format, from, valid, k, isa, to); break;
    case Q5_1: pack_tile<RowQ5_1>(format, from, valid, k, isa, to); break;
    case Q4_K: pack_tile<RowQ4_K>(format, from, valid, k, isa, to); break;
    case Q5_K: pack_tile<RowQ5_K>(format, from, valid, k, isa, to); break;
    case Q6_K: pack_tile<RowQ6_K>(format, from, valid, k, isa, to); break;
    case F8: pack_tile<RowF8>(format, from, valid, k, isa, to); break;
    case I4: pack_tile<RowI4>(format, from, valid, k, isa, to); break;
    case IQ4_NL: pack_tile<RowIQ4_NL>(format, from, valid, k, isa, to); break;
    case MXFP4: pack_tile<RowMXFP4>(format, from, valid, k, isa, to); break;
    case NVFP4: pack_tile<RowNVFP4>(format, from, valid, k, isa, to); break;
    default: pack_coded(format, from, valid, k, isa.tile_rows, to);
  }
}

}  // namespace

void pack(int format, const void* gguf_rows, int n, int k, uint8_t* tiles) {
  const KernelTable& isa = active_table();
  const uint8_t* from = static_cast<const uint8_t*>(gguf_rows);
  const size_t row = row_bytes(format, k), size = tile_bytes(format, k, isa.tile_rows);
  const int count = (n + isa.tile_rows - 1) / isa.tile_rows;
#pragma omp parallel for schedule(static) if (count * size > (1 << 18))
  for (int i = 0; i < count; ++i) {
    const int first = i * isa.tile_rows;
    const int valid = n - first < isa.tile_rows ? n - first : isa.tile_rows;
    pack_any(format, from + first * row, valid, k, isa, tiles + i * size);
  }
}

}  // namespace strata
