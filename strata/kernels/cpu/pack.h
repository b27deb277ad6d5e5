// What packers share: the bytes of one block of one tile, written row by row (layout.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace strata {

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
  void half(int h, int r, const void* from) const {
    std::memcpy(at + (size_t(h) * rows + r) * 2, from, 2);
  }
};

// One block of a row that is read as codes.
void pack_codes(int format, const Tile& tile, const void* block, int r);

}  // namespace strata
