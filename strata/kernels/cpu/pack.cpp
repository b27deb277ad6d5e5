// GGUF rows into interleaved tiles: a permutation of the file's bytes (layout.h).
#include "isa.h"
#include "kernels.h"
#include "layout.h"
#include "gguf_rows.h"

namespace strata {

const KernelTable& active_table();

namespace {

// The bytes of one block of one tile, written row by row.
struct Tile {
  uint8_t* at;  // the group's first unit
  int rows;

  // Four bytes of row r of unit u.
  void four(int u, int r, const void* from) const {
    std::memcpy(at + (size_t(u) * rows + r) * 4, from, 4);
  }
  void units(int u, int r, const void* from, int count) const {
    const uint8_t* p = static_cast<const uint8_t*>(from);
    for (int i = 0; i < count; ++i) four(u + i, r, p + 4 * i);
  }
  // The f16 of row r, in half h of the header.
  void half(int h, int r, const uint8_t* from) const {
    std::memcpy(at + (size_t(h) * rows + r) * 2, from, 2);
  }
};

// Bit i of the file's word is weight i's; here bit u of byte j is weight 4 u + j's.
void fifth_bits(const Tile& tile, int u, int r, const uint8_t* from) {
  const uint32_t word = read_as<uint32_t>(from);
  uint8_t bytes[4] = {};
  for (int i = 0; i < 32; ++i) bytes[i % 4] |= (word >> i & 1) << (i / 4);
  tile.four(u, r, bytes);
}

// `second`: the block's place in its group, 0 or 1.
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

// One tile: `valid` rows from `from`, zeros for the others.
template <class Row>
void pack_tile(int format, const uint8_t* from, int valid, int k, const KernelTable& isa,
               uint8_t* to) {
  const BlockLayout layout = block_layout(format);
  const int blocks = k / layout.block;
  std::memset(to, 0, tile_bytes(format, k, isa.tile_rows));
  for (int b = 0; b < blocks; ++b) {
    const size_t group = size_t(b / layout.group) * layout.units * 4 * isa.tile_rows;
    const Tile tile{to + group, isa.tile_rows};
    for (int r = 0; r < valid; ++r) {
      const Row* row = reinterpret_cast<const Row*>(from + size_t(r) * blocks * sizeof(Row));
      pack_block(tile, row[b], r, b % layout.group, isa.offset_q8);
    }
  }
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
    default: break;
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
