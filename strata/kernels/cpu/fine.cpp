#include "fine.h"

#include "layout.h"

namespace strata {

namespace {

template <class Block>
void subtract(const std::byte* row, int k, float* x) {
  constexpr int kSize = sizeof(Block::q);
  const Block* blocks = reinterpret_cast<const Block*>(row);
  for (int b = 0; b < k / kSize; ++b)
    for (int i = 0; i < kSize; ++i) x[b * kSize + i] -= blocks[b].d * blocks[b].q[i];
}

}  // namespace

void FineActivations::set(int row, float* x) const {
  std::byte* coarse = rows_ + row_bytes_ * parts_ * row;
  quantise_row(kind_, x, k_, coarse);
  if (parts_ == 1) return;
  kind_ == ACT_Q8_32 ? subtract<Act32>(coarse, k_, x) : subtract<Act256>(coarse, k_, x);
  quantise_row(kind_, x, k_, coarse + row_bytes_);
}

void FineActivations::multiply(const Slice& slice, int row, int rows, float* products, float* y,
                               int ldy) const {
  if (parts_ == 1) {
    multiply_slice(slice, rows_ + row_bytes_ * row, rows, y, ldy);
    return;
  }
  const int columns = slice.part.n;
  Slice bare = slice;
  bare.part.bias = nullptr;
  for (int first = 0; first < rows; first += kTokens) {
    const int tokens = std::min(kTokens, rows - first);
    multiply_slice(bare, rows_ + row_bytes_ * 2 * (row + first), 2 * tokens, products, columns);
    for (int t = 0; t < tokens; ++t) {
      const float* pair = products + static_cast<size_t>(2 * t) * columns;
      float* out = y + static_cast<size_t>(first + t) * ldy;
      std::copy(pair, pair + columns, out);
      row_kernels().add(out, pair + columns, columns);
      if (slice.part.bias) row_kernels().add(out, slice.part.bias, columns);
    }
  }
}

}  // namespace strata
