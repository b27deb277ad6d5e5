// What packers share: the bytes of one block of one tile (layout.h), row by row or, for what is
// most of a block, four rows at a time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "transpose.h"

namespace strata {

// Bytes of a file's block that become units of a tile: four at `offset` become unit `unit`, the
// next four unit `unit` + `step`, and so on.
struct Run {
  int unit, step;
  size_t offset;
  int count;
};

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
  // A run of the blocks of the first `valid` rows, `stride` bytes apart, the first at `block`;
  // bits of `flip` are turned over in all of them.
  void run(const Run& run, const uint8_t* block, size_t stride, int valid,
           uint32_t flip = 0) const {
    const size_t unit = size_t(4) * rows, step = run.step * unit;
    const uint8_t* from = block + run.offset;
    uint8_t* to = at + run.unit * unit;
    int r = 0;
    for (; r + 4 <= valid; r += 4) {
      for (int u = 0; u < run.count; u += 4) {
        transpose<uint32_t>(from + r * stride + 4 * u, stride, to + u * step + 4 * r, step, flip);
      }
    }
    for (; r < valid; ++r) {
      for (int u = 0; u < run.count; ++u) {
        uint32_t bytes;
        std::memcpy(&bytes, from + r * stride + 4 * u, 4);
        bytes ^= flip;
        four(run.unit + u * run.step, r, &bytes);
      }
    }
  }
};

// One block of a row that is read as codes.
void pack_codes(int format, const Tile& tile, const void* block, int r);

}  // namespace strata
