// Super-blocks that are read as codes into tiles: scales and planes of bits (layout.h).
#include <algorithm>

#include "codes.h"
#include "layout.h"
#include "pack.h"

namespace strata {

namespace {

// Codes of linear formats in the order of their values, which then need no table.
void in_order(int format, const CodesLayout& layout, Codes& codes) {
  if (layout.step == 0) return;
  const int8_t* values = code_values(format);
  const int least = *std::min_element(values, values + (1 << layout.bits));
  uint8_t order[16];
  for (int c = 0; c < 1 << layout.bits; ++c) {
    order[c] = static_cast<uint8_t>((values[c] - least) / layout.step);
  }
  for (uint8_t& code : codes.code) code = order[code];
}

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

// Bits [from, from + width) of the codes i, i + 32, i + 64 ... in byte i of a run of 32.
template <int width>
void plane(const uint8_t* code, int from, uint8_t* to) {
  constexpr int count = 8 / width, mask = (1 << width) - 1;
  for (int i = 0; i < 256; ++i) {
    const int run = i / 32;
    to[run / count * 32 + i % 32] |= (code[i] >> from & mask) << run % count * width;
  }
}

}  // namespace

void pack_codes(int format, const Tile& tile, const void* block, int r) {
  const CodesLayout layout = codes_layout(format);
  const int first = 1 + scale_units(layout);
  Codes codes;
  read_codes(format, block, codes);
  in_order(format, layout, codes);
  tile.half(0, r, &codes.d);
  tile.half(1, r, &codes.dmin);
  pack_scales(layout, tile, codes, r);
  uint8_t bytes[128] = {}, third[32] = {};
  if (layout.bits == 4) {
    plane<4>(codes.code, 0, bytes);
    tile.units(first, r, bytes, 32);
    return;
  }
  plane<2>(codes.code, 0, bytes);
  if (layout.bits == 2) {
    tile.units(first, r, bytes, 16);
    return;
  }
  plane<1>(codes.code, 2, third);
  for (int u = 0; u < 8; ++u) {
    tile.four(first + 2 * u, r, third + 4 * u);
    tile.four(first + 2 * u + 1, r, bytes + 4 * u);
  }
  tile.units(first + 16, r, bytes + 32, 8);
}

}  // namespace strata
