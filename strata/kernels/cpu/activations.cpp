#include "activations.h"

#include <algorithm>

#include "layout.h"
#include "rows.h"

namespace strata {

namespace {

template <class Block>
void subtract(const std::byte* row, int k, const float* x, float* rest) {
  constexpr int kSize = sizeof(Block::q);
  const Block* blocks = reinterpret_cast<const Block*>(row);
  for (int b = 0; b < k / kSize; ++b)
    for (int i = 0; i < kSize; ++i)
      rest[b * kSize + i] = x[b * kSize + i] - blocks[b].d * blocks[b].q[i];
}

}  // namespace

Activations::Activations(Carver& carver, int rows, int id, int threads,
                         std::initializer_list<const Linear*> linears) {
  for (const Linear* linear : linears) {
    k_ = linear->k;
    const ActKind kind = act_kind(linear->format);
    Form& form = forms_[kind];
    if (form.parts != 0) continue;
    form.row_bytes = act_bytes(kind, k_);
    form.parts = kind == ACT_F32 ? 1 : 2;
    const size_t bytes = form.row_bytes * form.parts * rows;
    const int copies = each_prepares(rows) ? threads : 1;
    std::byte* all = carver.take<std::byte>(bytes * copies);
    form.rows = all && copies > 1 ? all + bytes * id : all;
  }
  const size_t floats = (static_cast<size_t>(k_) + 15) / 16 * 16;
  float* all = carver.take<float>(floats * threads);
  rest_ = all ? all + floats * id : nullptr;
}

void Activations::set(int row, const float* x) const {
  for (int i = 0; i < kKinds; ++i) {
    const Form& form = forms_[i];
    if (form.parts == 0) continue;
    const ActKind kind = static_cast<ActKind>(i);
    std::byte* coarse = form.rows + form.row_bytes * form.parts * row;
    quantise_row(kind, x, k_, coarse);
    if (form.parts == 1) continue;
    kind == ACT_Q8_32 ? subtract<Act32>(coarse, k_, x, rest_)
                      : subtract<Act256>(coarse, k_, x, rest_);
    quantise_row(kind, rest_, k_, coarse + form.row_bytes);
  }
}

void Activations::multiply(const Slice& slice, int row, int rows, float* products, float* y,
                           int ldy) const {
  const Form& form = forms_[act_kind(slice.part.format)];
  if (form.parts == 1) {
    multiply_slice(slice, form.at(row), rows, y, ldy);
    return;
  }
  const int columns = slice.part.n;
  Slice bare = slice;
  bare.part.bias = nullptr;
  for (int first = 0; first < rows; first += kTokens) {
    const int tokens = std::min(kTokens, rows - first);
    multiply_slice(bare, form.at(row + first), 2 * tokens, products, columns);
    for (int t = 0; t < tokens; ++t) {
      const float* pair = products + static_cast<size_t>(2 * t) * columns;
      float* out = y + static_cast<size_t>(first + t) * ldy;
      std::copy(pair, pair + columns, out);
      row_kernels().add(out, pair + columns, columns);
      if (slice.part.bias) row_kernels().add(out, slice.part.bias, columns);
    }
  }
}

void Activations::add(const Slice& slice, int row, int rows, float* products, float* sums, float* y,
                      int ldy) const {
  const int columns = slice.part.n;
  multiply(slice, row, rows, products, sums, columns);
  for (int r = 0; r < rows; ++r)
    row_kernels().add(y + static_cast<size_t>(r) * ldy, sums + static_cast<size_t>(r) * columns,
                      columns);
}

}  // namespace strata
