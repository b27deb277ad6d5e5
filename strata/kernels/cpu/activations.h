// Rows of activations in every form that the products of a phase take.
//
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
  // Room for `rows` rows of k values as `linears` take them; `id` of `threads` asks.
  Activations(Carver& carver, int rows, int id, int threads,
              std::initializer_list<const Linear*> linears);
  // The same for products with matrices of these formats.
  Activations(Carver& carver, int rows, int id, int threads, int k,
              std::initializer_list<int> formats);
  void set(int row, const float* x) const;

  // y = the slice's product with rows [row, row + rows) on its columns.
  void multiply(const Slice& slice, int row, int rows, float* y, int ldy) const;
  // The same with rows order[0], order[1], ...
  void gather(const Slice& slice, const int32_t* order, int rows, float* y, int ldy) const;

 private:
  static constexpr int kKinds = 3;
  void take(Carver& carver, int format, int rows, int id, int threads);
  struct Form {
    size_t row_bytes = 0;  // 0: not used
    std::byte* rows = nullptr;
  };
  Form forms_[kKinds];
  int k_ = 0;
};

}  // namespace strata
