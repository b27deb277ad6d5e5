// Super-blocks that are read as codes into tiles: scales and planes of bits (layout.h).
#include "codes.h"
#include "layout.h"
#include "pack.h"

namespace strata {

namespace {

// What is kept of a run's scale and minimum.
uint8_t scale_byte(Scales kind, int scale, int minimum) {
  switch (kind) {
    case SCALE_ODD: return static_cast<uint8_t>(scale / 2);
    case SCALE_MIN: return static_cast<uint8_t>(scale | minimum << 4);
    case SCALE_TIMES: return static_cast<uint8_t>(scale | minimum / scale << 4);
    default: return static_cast<uint8_t>(scale);
  }
}

void pack_scales(const CodesLayout& layout, const Tile& tile, const Codes& codes, int r) {
  if (layout.scales == SCALE_ONE) return;
  uint8_t* to = tile.at + size_t(4) * tile.rows;
  const int each = layout.width / 16;
  for (int i = 0; i < 256 / layout.width; ++i) {
    const uint8_t byte = scale_byte(layout.scales, codes.scale[i * each], codes.minimum[i * each]);
    const size_t pair = size_t(i / 2) * tile.rows + r;
    if (layout.scales == SCALE_ODD) to[pair] |= byte << i % 2 * 4;
    else to[2 * pair + i % 2] = byte;
  }
}

// `width` bits of each of the runs of 32 codes, the first in the lowest bits of 32 bytes.
template <int width>
void planes(const uint8_t* code, int runs, uint8_t* __restrict to) {
  constexpr int count = 8 / width;
  for (int run = 0; run < runs; ++run) {
    const int first = run / count * 32, shift = run % count * width;
    for (int i = 0; i < 32; ++i) to[first + i] |= code[32 * run + i] << shift;
  }
}

void pack_planes(int bits, const uint8_t* code, uint8_t* __restrict to) {
  if (bits == 2) return planes<2>(code, 8, to);
  planes<4>(code, bits == 3 ? 6 : 8, to);
  if (bits == 4) return;
  const uint8_t* last = code + 192;
  for (int bit = 0; bit < 3; ++bit) {
    for (int i = 0; i < 32; ++i) {
      to[32 * bit + i] |= (last[i] >> bit & 1) << 3 | (last[32 + i] >> bit & 1) << 7;
    }
  }
}

}  // namespace

void pack_codes(int format, const Tile& tile, const void* block, int r) {
  const CodesLayout layout = codes_layout(format);
  const int first = 1 + scale_units(layout);
  Codes codes;
  read_codes(format, block, codes);
  tile.half(0, r, &codes.d);
  tile.half(1, r, &codes.dmin);
  pack_scales(layout, tile, codes, r);
  uint8_t bytes[128] = {};
  pack_planes(layout.bits, codes.code, bytes);
  tile.units(first, r, bytes, 8 * layout.bits);
}

}  // namespace strata
