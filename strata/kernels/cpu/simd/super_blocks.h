// What the products with super-blocks of 256 have in common: totals, and the walk over k.
#pragma once
#include "layout.h"
#include "simd/matmul.h"

namespace strata::STRATA_ISA {

constexpr int kUnit = 4 * kRows;
constexpr int kHalves = 2 * kRows;

// The step-th of the 64 prefetches of a super-block, spread over the whole of it: all
// at once, they are more than the processor keeps in flight.
template <int units>
STRATA_INLINE void stream(const uint8_t* ahead, int step) {
  const int unit = step * units / 64;
  if (unit != (step + 1) * units / 64) __builtin_prefetch(ahead + unit * kUnit);
}

// Sums over a super-block for one row: of the coarse bytes, of the rests.
struct Totals {
  I part[2];
  STRATA_INLINE F both(F unit) const { return f_fma(f_from(part[0]), unit, f_from(part[1])); }
};

template <int MR>
STRATA_INLINE const Act256& act(const uint8_t* const (&rows)[MR], int m, size_t at) {
  return *reinterpret_cast<const Act256*>(rows[m] + at);
}

// Rows take a sub-block a few at a time: their dots and the totals of all rows fit the
// registers. With AVX-512 the sub-block's weights do too, and are unpacked only once.
template <int MR>
constexpr int kFew = MR % kAtOnce ? 1 : kAtOnce;

// Kind: a format's constants, and block(), which adds one super-block's products to acc.
template <class Kind>
struct Kernel256 {
  static constexpr int kMaxRows = kPatch256;
  static constexpr int tiles_at(int) { return 1; }

  template <int MR, int NT>
  static __attribute__((noinline)) void patch(const Patch patch) {
    constexpr size_t block_bytes = size_t(block_layout(Kind::kFormat).units) * kUnit;
    const Panel& p = *patch.panel;
    const uint8_t* w = p.tiles + patch.tile * p.tile_bytes;
    const uint8_t* rows[MR];
    F acc[1][MR];
    for (int m = 0; m < MR; ++m) rows[m] = act_row(p, patch.row + m);
    STRATA_UNROLL for (int m = 0; m < MR; ++m) acc[0][m] = f_zero();
    const int blocks = p.k / 256;
    const Kind kind;
    const size_t ahead = patch.row == 0 ? 5120 : 0;  // later rows find them in the cache
    for (int b = 0; b < blocks; ++b, w += block_bytes) {
      kind.template block<MR>(w, w + ahead, rows, size_t(b) * sizeof(Act256), acc);
    }
    store<MR, 1>(patch, acc);
  }
};

}  // namespace strata::STRATA_ISA
