// Products with E4M3 weights that share a float32 scale in blocks of 128 along k.
//
// Per block, row and output: s = fma(x, w / 256, s) for k = 0 .. 127, one chain; then
//   y = fma(s, 256 d, y).
// A byte becomes a float in registers: its bits are the middle of an f16.
#include "layout.h"
#include "simd/matmul.h"

namespace strata::STRATA_ISA {

namespace {

constexpr int kBlock = 128;

struct KernelF8 {
  static constexpr int kMaxRows = kPatchRows;
  // Some eight chains at once hide the latency of the sums.
  static constexpr int tiles_at(int rows) { return rows <= 2 ? 4 : rows <= 4 ? 2 : 1; }

  template <int MR, int NT>
  static __attribute__((noinline)) void patch(const Patch patch) {
    constexpr size_t bytes = size_t(kRows) * (4 + kBlock);
    const Panel& p = *patch.panel;
    const uint8_t *tile[NT], *rows[MR];
    F acc[NT][MR];
    for (int t = 0; t < NT; ++t) tile[t] = p.tiles + (patch.tile + t) * p.tile_bytes;
    for (int m = 0; m < MR; ++m) rows[m] = act_row(p, patch.row + m);
    STRATA_UNROLL for (int t = 0; t < NT; ++t) {
      STRATA_UNROLL for (int m = 0; m < MR; ++m) acc[t][m] = f_zero();
    }
    const bool cold = patch.row == 0;  // later rows find the weights in the cache
    for (int b = 0; b < p.k / kBlock; ++b) {
      F sum[NT][MR];
      block<MR, NT>(tile, rows, size_t(b) * kBlock * sizeof(float), cold, sum);
      STRATA_UNROLL for (int t = 0; t < NT; ++t) {
        const F d = f_mul(f_load(tile[t]), f_all(256.0f));
        STRATA_UNROLL for (int m = 0; m < MR; ++m) acc[t][m] = f_fma(sum[t][m], d, acc[t][m]);
        tile[t] += bytes;
      }
    }
    store<MR, NT>(patch, acc);
  }

  // `at`: where the block's activations begin in a row.
  template <int MR, int NT>
  STRATA_INLINE static void block(const uint8_t* const (&tile)[NT],
                                  const uint8_t* const (&rows)[MR], size_t at, bool cold,
                                  F (&sum)[NT][MR]) {
    constexpr int kLine = 64 / kRows;  // k of which a tile's bytes fill a cache line
    STRATA_UNROLL for (int t = 0; t < NT; ++t) {
      STRATA_UNROLL for (int m = 0; m < MR; ++m) sum[t][m] = f_zero();
    }
    for (int k = 0; k < kBlock; k += kLine) {
      if (cold) {
        STRATA_UNROLL for (int t = 0; t < NT; ++t) {
          __builtin_prefetch(tile[t] + k * kRows + 4096);
        }
      }
      STRATA_UNROLL for (int j = 0; j < kLine; ++j) {
        F w[NT];
        STRATA_UNROLL for (int t = 0; t < NT; ++t) {
          w[t] = f_e4m3(tile[t] + size_t(4 + k + j) * kRows);
        }
        STRATA_UNROLL for (int m = 0; m < MR; ++m) {
          float x;
          std::memcpy(&x, rows[m] + at + size_t(k + j) * sizeof(float), 4);
          STRATA_UNROLL for (int t = 0; t < NT; ++t) {
            sum[t][m] = f_fma(f_all(x), w[t], sum[t][m]);
          }
        }
      }
    }
  }
};

}  // namespace

void multiply_fp8(const Panel& panel) { cover<KernelF8>(panel); }

}  // namespace strata::STRATA_ISA
