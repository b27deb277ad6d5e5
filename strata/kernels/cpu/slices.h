// Matrix products as shares of a phase.
//
// A `Slices` cuts the output columns of one or several matrices into pieces of whole
// weight tiles, about kPerThread for each thread. How it cuts never changes a result:
// an element is computed the same way in every slice (linear.h).
#pragma once
#include <algorithm>
#include <cstddef>

#include "layout.h"
#include "linear.h"

namespace strata {

// Columns [first, first + part.n) of a matrix.
struct Slice {
  Linear part;
  int first;
};

inline int tiles_of(const Linear& linear) { return (linear.n + tile_rows() - 1) / tile_rows(); }

// Tiles in a slice of matrices like `linear`, when `tiles` of them are shared by `threads`.
inline int slice_tiles(const Linear& linear, int tiles, int threads) {
  constexpr int kPerThread = 8;
  constexpr size_t kMostBytes = 1 << 18;  // so that a slow core delays a phase little
  int most = static_cast<int>(kMostBytes / tile_bytes(linear.format, linear.k, tile_rows()));
  return std::max(1, std::min(most, tiles / (kPerThread * threads)));
}

inline int slice_count(const Linear& linear, int tiles_each) {
  return (tiles_of(linear) + tiles_each - 1) / tiles_each;
}

inline Slice slice_at(const Linear& linear, int tiles_each, int index) {
  int first = index * tiles_each * tile_rows();
  int n = std::min(tiles_each * tile_rows(), linear.n - first);
  size_t skipped = tile_bytes(linear.format, linear.k, tile_rows()) *
                   (static_cast<size_t>(index) * tiles_each);
  return {{linear.format, n, linear.k, linear.tiles + skipped,
           linear.bias ? linear.bias + first : nullptr},
          first};
}

// The product of a slice with `rows` rows of activations, by the calling thread.
inline void multiply_slice(const Slice& slice, const std::byte* act, const int32_t* order, int rows,
                           float* y, int ldy) {
  int tasks = matmul_tasks(slice.part, rows);
  for (int task = 0; task < tasks; ++task) matmul_task(slice.part, act, order, rows, y, ldy, task);
}

}  // namespace strata
