// The lanes of the instruction set being compiled for; each file provides the same
// names in namespace STRATA_ISA. One lane per output row of a tile.
//
//   kRows          lanes; kOffsetQ8: weights of 8 bits are unsigned too: those of Q8_0 are
//                  stored plus 128
//   kPatchRows     rows of float activations that the registers take at once;
//                  kPatch32, kPatch256: of 16-bit ones, in blocks of 32 and of 256;
//                  kAtOnce: of these, those whose dots with a sub-block are in registers
//   F              one float per lane     I  one int32 per lane
//   U              a unit of weights: four bytes per lane
//   X              four activations, the same in every lane, in a register or in memory
//   P              two int16 per lane     S  what an integer sum is multiplied by
//   PairDot<bits>  products of units with 256 coarse + rest, summed over a block of eight
//                  units: start(neg), step(0 .. 7, u, coarse, rest), sum(neg); weights
//                  unsigned, of so many bits (8: as stored); neg is added once, null for
//                  nothing
//   ScaledDot<bits, steps>   products of one byte over `steps` units, then add_to(total, s);
//                  kDotSteps<bits>: more steps than these do not fit the registers
//
//   f_upper, i_bytes         upper 24 bits of words as floats, their lowest bytes
//   f_e4m3                   E4M3 bytes over 256
//
// KEEP pins a value into a register: without it the compiler reorders integer sums
// into trees that spill.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

// Unrolling is for registers; the portable lanes are arrays, and unrolled they take the
// compiler minutes.
#if defined(STRATA_ISA_portable)
#define STRATA_INLINE inline
#define STRATA_UNROLL
#else
#define STRATA_INLINE inline __attribute__((always_inline))
#define STRATA_UNROLL _Pragma("GCC unroll 16")
#endif

#if defined(STRATA_ISA_avx512)
#include "tile_lanes_avx512.h"
#elif defined(STRATA_ISA_avx2)
#include "tile_lanes_avx2.h"
#elif defined(STRATA_ISA_neon)
#include "tile_lanes_neon.h"
#else
#include "tile_lanes_portable.h"
#endif
