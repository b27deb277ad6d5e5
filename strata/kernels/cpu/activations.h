// Rows of activations in every form that the products of a phase take.
//
// A row keeps 16 bits: it is quantised to 8, and what that lost is quantised again.
// Both products are taken in one pass over the weights and added. With 8 bits alone
// every greedy choice within some 0.3 of a tie was a toss-up (docs/kernels.md).
// Few rows are prepared by every thread for itself: that costs less than a phase.
#pragma once
#include <cstddef>
#include <initializer_list>

#include "linear.h"
#include "program.h"
#include "slices.h"
#include "team.h"

namespace strata {

inline bool each_prepares(int rows) { return rows <= 2; }

// row(r) for every row, then a phase of tasks that read the rows.
template <class Row, class Task>
void share_after_rows(Member& member, int rows, Row row, int count, Task task) {
  if (each_prepares(rows)) {
    member.share(count, task, [&] {
      for (int r = 0; r < rows; ++r) row(r);
    });
    return;
  }
  constexpr int kRows = 4;
  member.share((rows + kRows - 1) / kRows, [&](int part) {
    for (int r = part * kRows; r < rows && r < (part + 1) * kRows; ++r) row(r);
  });
  member.share(count, task);
}

class Activations {
 public:
  static constexpr int kTokens = 32;  // whose products are taken at a time

  // Room for `rows` rows of k values as `linears` take them; `id` of `threads` asks.
  Activations(Carver& carver, int rows, int id, int threads,
              std::initializer_list<const Linear*> linears);
  void set(int row, const float* x) const;

  // Floats that `multiply` needs for products of `columns` columns.
  static size_t product_floats(int columns, int rows) {
    return static_cast<size_t>(columns) * 2 * (rows < kTokens ? rows : kTokens);
  }
  // y = the slice's product with rows [row, row + rows) on its columns.
  void multiply(const Slice& slice, int row, int rows, float* products, float* y, int ldy) const;
  // The same, added to y; at most kTokens rows. `sums` has room for rows * columns floats.
  void add(const Slice& slice, int row, int rows, float* products, float* sums, float* y,
           int ldy) const;

 private:
  static constexpr int kKinds = 3;
  struct Form {
    size_t row_bytes = 0;  // of one part
    int parts = 0;         // 2: coarse and rest; 1 where nothing is rounded
    std::byte* rows = nullptr;
    const std::byte* at(int row) const { return rows + row_bytes * parts * row; }
  };
  Form forms_[kKinds];
  float* rest_ = nullptr;  // the thread's: what the first rounding lost
  int k_ = 0;
};

}  // namespace strata
