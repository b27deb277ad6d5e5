// Rows of activations in every form that the products of a phase take.
//
// Few rows are prepared by every thread for itself: that costs less than a phase.
#pragma once
#include <cstddef>
#include <initializer_list>

#include "linear.h"
#include "program.h"
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
              std::initializer_list<const Linear*> linears) {
    for (const Linear* linear : linears) {
      k_ = linear->k;
      ActKind kind = act_kind(linear->format);
      if (forms_[kind].row_bytes != 0) continue;
      size_t bytes = act_bytes(kind, k_);
      int copies = each_prepares(rows) ? threads : 1;
      std::byte* all = carver.take<std::byte>(bytes * rows * copies);
      size_t own = copies > 1 ? bytes * rows * id : 0;
      forms_[kind] = {bytes, all ? all + own : nullptr};
    }
  }
  void set(int row, const float* x) const {
    for (int kind = 0; kind < kKinds; ++kind)
      if (forms_[kind].row_bytes != 0)
        quantise_row(static_cast<ActKind>(kind), x, k_,
                     forms_[kind].rows + forms_[kind].row_bytes * row);
  }
  // Rows from `row` on, for this product.
  const std::byte* rows_for(const Linear& linear, int row) const {
    const Form& form = forms_[act_kind(linear.format)];
    return form.rows + form.row_bytes * row;
  }

 private:
  static constexpr int kKinds = 3;
  struct Form {
    size_t row_bytes = 0;
    std::byte* rows = nullptr;
  };
  Form forms_[kKinds];
  int k_ = 0;
};

}  // namespace strata
