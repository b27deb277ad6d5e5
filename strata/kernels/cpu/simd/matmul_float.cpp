// Products with plain weights: F32, F16, BF16; and the table of this instruction set.
//
// y = fma(x, w, y) for k = 0, 1, 2, ...: one chain per output, many outputs at once.
#include "layout.h"
#include "simd/matmul.h"

namespace strata::STRATA_ISA {

namespace {

template <int format>
STRATA_INLINE F weights(const uint8_t* p) {
  if constexpr (format == F32) return f_load(p);
  else if constexpr (format == F16) return f_half(p);
  else return f_bf16(p);
}

template <int format>
struct KernelFloat {
  static constexpr int kMaxRows = kPatchRows;
  static constexpr int tiles_at(int rows) { return rows <= 2 ? 4 : 2; }

  template <int MR, int NT>
  static __attribute__((noinline)) void patch(const Patch patch) {
    constexpr size_t width = kRows * (format == F32 ? 4 : 2);
    const Panel& p = *patch.panel;
    const uint8_t *tile[NT], *rows[MR];
    F acc[NT][MR];
    for (int t = 0; t < NT; ++t) tile[t] = p.tiles + (patch.tile + t) * p.tile_bytes;
    for (int m = 0; m < MR; ++m) rows[m] = act_row(p, patch.row + m);
    STRATA_UNROLL for (int t = 0; t < NT; ++t) {
      STRATA_UNROLL for (int m = 0; m < MR; ++m) acc[t][m] = f_zero();
    }
    const bool cold = patch.row == 0;  // later rows find the weights in the cache
    for (int k = 0; k < p.k; ++k) {
      if (cold) prefetch<width, NT>(tile, k, p.tile_bytes);
      F w[NT];
      STRATA_UNROLL for (int t = 0; t < NT; ++t) w[t] = weights<format>(tile[t] + k * width);
      STRATA_UNROLL for (int m = 0; m < MR; ++m) {
        float x;
        std::memcpy(&x, rows[m] + size_t(k) * 4, 4);
        STRATA_UNROLL for (int t = 0; t < NT; ++t) {
          acc[t][m] = f_fma(f_all(x), w[t], acc[t][m]);
        }
      }
    }
    store<MR, NT>(patch, acc);
  }

  // 4 KB ahead in each of the tiles; beyond its end, in the tile that follows the group.
  template <size_t width, int NT>
  STRATA_INLINE static void prefetch(const uint8_t* const (&tile)[NT], int k, size_t bytes) {
    size_t ahead = k * width + 4096;
    if (ahead >= bytes) ahead += (NT - 1) * bytes;
    if (width < 64 && k * width % 64) return;
    STRATA_UNROLL for (int t = 0; t < NT; ++t) __builtin_prefetch(tile[t] + ahead);
  }
};

void multiply(int format, const Panel& panel) {
  const int block = block_layout(format).block;
  if (block == 32) return multiply_32(format, panel);
  if (is_coded(format)) return multiply_codes(format, panel);
  if (block == 256) return multiply_256(format, panel);
  if (format == F8) return multiply_fp8(panel);
  multiply_float(format, panel);
}

}  // namespace

void multiply_float(int format, const Panel& panel) {
  switch (format) {
    case F32: cover<KernelFloat<F32>>(panel); break;
    case F16: cover<KernelFloat<F16>>(panel); break;
    default: cover<KernelFloat<BF16>>(panel);
  }
}

extern const KernelTable kTable;
const KernelTable kTable = {kRows, kOffsetQ8, quantise_row, multiply};

}  // namespace strata::STRATA_ISA
