// Products whose activations keep 16 bits instead of 8.
//
// A row is quantised, and what that lost is quantised again: two rows, whose products
// are added. Weights are read once for both, so it costs arithmetic only. Meant for
// small matrices that the model's answer hangs on: values of attention, logits.
#pragma once
#include <algorithm>
#include <cstddef>

#include "activations.h"
#include "linear.h"
#include "program.h"
#include "rows.h"
#include "slices.h"

namespace strata {

class FineActivations {
 public:
  static constexpr int kTokens = 32;  // whose products are taken at a time

  // Room for `rows` rows as `linear` takes them; `id` of `threads` asks.
  FineActivations(Carver& carver, int rows, int id, int threads, const Linear& linear)
      : kind_(act_kind(linear.format)),
        k_(linear.k),
        parts_(kind_ == ACT_F32 ? 1 : 2),
        row_bytes_(act_bytes(kind_, linear.k)) {
    size_t bytes = row_bytes_ * parts_ * rows;
    int copies = each_prepares(rows) ? threads : 1;
    std::byte* all = carver.take<std::byte>(bytes * copies);
    rows_ = all && copies > 1 ? all + bytes * id : all;
  }

  // Takes row x, and leaves what it lost to the first rounding in x.
  void set(int row, float* x) const;

  // y = the slice's product with rows [row, row + rows) on its columns.
  // products: columns * 2 * min(rows, kTokens) floats.
  void multiply(const Slice& slice, int row, int rows, float* products, float* y, int ldy) const;

 private:
  ActKind kind_;
  int k_;
  int parts_;  // rows of activations for a row
  size_t row_bytes_;
  std::byte* rows_;
};

}  // namespace strata
