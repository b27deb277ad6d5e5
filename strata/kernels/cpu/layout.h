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
//   IQ4_NL, MXFP4                    as Q4_0; d of MXFP4 is bf16
//   NVFP4       block:               d, d | 4 units of which each 8 of a row are 16 weights,
//                                    8 in the low nibbles and 8 in the high ones
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
//   Q2_K, Q3_K, IQ*, TQ*  block:     d, dmin | scales | planes of codes: see CodesLayout
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

// How the scales of a super-block of codes lie, one for each run of `width` weights; pairs of
// runs 2 j and 2 j + 1, in the order of j.
enum Scales {
  SCALE_ONE,    // all are 1: nothing
  SCALE_ODD,    // 2 n + 1: R bytes, n of both runs in a low and a high nibble
  SCALE_BYTE,   // R pairs of signed bytes
  SCALE_MIN,    // R pairs of bytes: scale, minimum in a low and a high nibble
  SCALE_TIMES,  // the same with minimum / scale
};

// Codes of four k of a row in four bytes, as everywhere. Unit u = 0..7 of 32 weights j = 0..7,
// k = 32 j + 4 u ...:
//   4 bits   unit 8 (j / 2) + u, in low nibbles for even j
//   2 bits   unit 8 (j / 4) + u, in bits 2 (j % 4) ...
//   3 bits   as 4 bits for j < 6; what is left of their nibbles are the bits, from the lowest on,
//            of the codes of j = 6, in low nibbles of units u, 8 + u, 16 + u, and of 7
// A value of code_values(format) is step * code - offset (minima aside); where step is 0, a table
// tells it, and it is no less than -offset.
struct CodesLayout {
  int bits, width;
  Scales scales;
  int step, offset;
};

constexpr CodesLayout codes_layout(int format) {
  switch (format) {
    case TQ1_0:
    case TQ2_0: return {2, 32, SCALE_ONE, 1, 1};
    case IQ1_S: return {2, 32, SCALE_TIMES, 8, 0};
    case Q2_K: return {2, 16, SCALE_MIN, 1, 0};
    case IQ1_M: return {3, 16, SCALE_ODD, 0, 9};
    case IQ2_XXS: return {3, 32, SCALE_ODD, 0, 43};
    case IQ2_XS:
    case IQ2_S: return {3, 16, SCALE_ODD, 0, 43};
    case Q3_K: return {3, 16, SCALE_BYTE, 1, 4};
    case IQ3_XXS: return {4, 32, SCALE_ODD, 0, 62};
    case IQ3_S: return {4, 32, SCALE_ODD, 2, 15};
    case IQ4_XS: return {4, 32, SCALE_BYTE, 0, 127};
    default: return {};
  }
}

constexpr bool is_coded(int format) { return codes_layout(format).bits != 0; }

constexpr int scale_units(const CodesLayout& codes) {
  if (codes.scales == SCALE_ONE) return 0;
  return 256 / codes.width / (codes.scales == SCALE_ODD ? 8 : 4);
}

constexpr BlockLayout block_layout(int format) {
  if (const CodesLayout codes = codes_layout(format); codes.bits) {
    return {256, 1, 1 + scale_units(codes) + 8 * codes.bits};
  }
  switch (format) {
    case Q8_0: return {32, 2, 17};
    case IQ4_NL:
    case MXFP4:
    case Q4_0: return {32, 2, 9};
    case Q5_0: return {32, 2, 11};
    case NVFP4:
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
  // -8 times the sum of q, of all and of the first 16: what an offset of 8 adds to a product
  int32_t neg8, neg8_first;
};
static_assert(sizeof(Act32) == 80);

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
