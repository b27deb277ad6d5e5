// How packed weights and quantised activations lie in memory.
//
// A tile holds R output rows (R = 8 or 16) and all of k. Its bytes come in units of
// 4 R: four bytes of row 0, four of row 1, ... so one vector register holds four k
// of every row, and the same four activations are broadcast to all of them. Only the
// order of the file's bytes changes; the 6-bit scales of Q4_K and Q5_K are widened
// to bytes. f16 values of a block lie as R halves, half a unit.
//
//   Q8_0        groups of 2 blocks:  d, d | 8 units, 8 units    unit u: k = 4 u ...
//   Q4_0        groups of 2 blocks:  d, d | 4 units, 4 units    unit u: k = 4 u ... in
//                                    the low nibbles, 16 + 4 u ... in the high ones
//   Q5_0        groups of 2 blocks:  d, d | bits, 4 units | bits, 4 units
//   Q4_1        block:               d, m | 4 units
//   Q5_1        block:               d, m | bits, 4 units       bit u of byte j of a row
//                                    is the fifth bit of k = 4 u + j
//   I4          block:               R times 24 bits of d and z | 4 units
//   F8          block:               R floats d | 128 x R bytes
//   Q4_K        block:               d, dmin | 8 x R scales | 32 units of the file's qs |
//                                    4 x R pairs of minima
//   Q5_K        block:               d, dmin | 8 x R scales | 8 times a unit of fifth bits
//                                    and one of qs | the other 24 | 4 x R pairs of minima
//   Q6_K        block:               d, nothing | each half of 128: 4 x R pairs of scales,
//                                    8 times a unit of upper bits and one of nibbles,
//                                    8 more of nibbles
//   F32, F16, BF16                   k x R values
//
// Bytes lie in the order in which a product first reads them: out of order, the
// processor's own prefetching fails and Q6_K ran at a third of the memory's speed.
// Q8_0 bytes are offset by 128 where the instruction set multiplies unsigned weights.
#pragma once
#include <cstddef>
#include <cstdint>

#include "linear.h"

namespace strata {

struct BlockLayout {
  int block;  // weights of a row in a block
  int group;  // blocks that share a header
  int units;  // units of a group, header included; 0 for unblocked formats
};

constexpr BlockLayout block_layout(int format) {
  switch (format) {
    case Q8_0: return {32, 2, 17};
    case Q4_0: return {32, 2, 9};
    case Q5_0: return {32, 2, 11};
    case Q4_1: return {32, 1, 5};
    case Q5_1: return {32, 1, 6};
    case Q4_K: return {256, 1, 37};
    case Q5_K: return {256, 1, 45};
    case Q6_K: return {256, 1, 53};
    case F8: return {128, 1, 33};
    case I4: return {32, 1, 5};
    default: return {1, 1, 0};
  }
}

constexpr size_t tile_bytes(int format, int k, int rows) {
  const BlockLayout layout = block_layout(format);
  if (layout.units) {
    const size_t groups = (size_t(k) / layout.block + layout.group - 1) / layout.group;
    return groups * layout.units * 4 * rows;
  }
  return size_t(k) * rows * (format == F32 ? 4 : 2);
}

// One block of activations: x is d times q = 256 coarse + rest, with d = max |x| / 32512.
// rest is never -128: the negative of a byte must be a byte.
struct Act32 {
  int8_t coarse[32];
  int8_t rest[32];
  float d;
  float ds;       // d times the sum of q
  int32_t neg8;   // -8 times the sum of q: what an offset of 8 adds to an integer product
};
static_assert(sizeof(Act32) == 76);

// The sums of coarse, then those of rest.
struct Act256 {
  int8_t coarse[256];
  int8_t rest[256];
  float d;
  int16_t sum32[2][8];
  int16_t sum16[2][16];
};
static_assert(sizeof(Act256) == 612);

}  // namespace strata
