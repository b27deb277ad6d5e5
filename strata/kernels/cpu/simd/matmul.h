// The matrix products of one instruction set, declared for its own files.
#pragma once
#include "kernels.h"
#include "simd/tile_lanes.h"

namespace strata::STRATA_ISA {

void quantise_row(ActKind kind, const float* x, int k, void* act_row);
void multiply_32(int format, const Panel& panel);    // blocks of 32
void multiply_256(int format, const Panel& panel);   // Q4_K, Q5_K, Q6_K
void multiply_codes(int format, const Panel& panel); // other blocks of 256
void multiply_fp8(const Panel& panel);               // F8
void multiply_float(int format, const Panel& panel);

// A rectangle of MR rows times NT tiles of a panel.
struct Patch {
  const Panel* panel;
  int row, tile;
};

STRATA_INLINE const uint8_t* act_row(const Panel& panel, int row) {
  return panel.act + (panel.order ? panel.order[row] : row) * panel.act_stride;
}

// acc[t][m] -> y, with the bias; the last tile may be narrower.
template <int MR, int NT>
STRATA_INLINE void store(const Patch& at, F (&acc)[NT][MR]) {
  const Panel& p = *at.panel;
  STRATA_UNROLL for (int t = 0; t < NT; ++t) {
    const int lanes = at.tile + t + 1 == p.tile_count ? p.lanes : kRows;
    const int column = (at.tile + t) * kRows;
    STRATA_UNROLL for (int m = 0; m < MR; ++m) {
      F v = acc[t][m];
      if (p.bias) v = f_add(v, f_load_some(p.bias + column, lanes));
      f_store_some(p.y + size_t(at.row + m) * p.ldy + column, v, lanes);
    }
  }
}

// Covers a panel with patches, as large as fit: rows outermost, so that a few rows
// of activations stay in the first-level cache while the weights pass by.
template <class Kernel, int MR>
STRATA_INLINE void cover_rows(const Panel& panel, int row) {
  constexpr int NT = Kernel::tiles_at(MR);
  int tile = 0;
  for (; tile + NT <= panel.tile_count; tile += NT) {
    Kernel::template patch<MR, NT>(Patch{&panel, row, tile});
  }
  if constexpr (NT > 1) {
    for (; tile < panel.tile_count; ++tile) {
      Kernel::template patch<MR, 1>(Patch{&panel, row, tile});
    }
  }
}

template <class Kernel, int MR = Kernel::kMaxRows>
STRATA_INLINE void cover(const Panel& panel, int row = 0) {
  for (; row + MR <= panel.rows; row += MR) cover_rows<Kernel, MR>(panel, row);
  if constexpr (MR > 1) {
    if (row < panel.rows) cover<Kernel, MR - 1>(panel, row);
  }
}

}  // namespace strata::STRATA_ISA
