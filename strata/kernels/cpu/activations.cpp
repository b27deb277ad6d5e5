#include "activations.h"

namespace strata {

Activations::Activations(Carver& carver, int rows, int id, int threads,
                         std::initializer_list<const Linear*> linears) {
  for (const Linear* linear : linears) {
    k_ = linear->k;
    take(carver, linear->format, rows, id, threads);
  }
}

Activations::Activations(Carver& carver, int rows, int id, int threads, int k,
                         std::initializer_list<int> formats)
    : k_(k) {
  for (int format : formats) take(carver, format, rows, id, threads);
}

void Activations::take(Carver& carver, int format, int rows, int id, int threads) {
  const ActKind kind = act_kind(format);
  Form& form = forms_[kind];
  if (form.row_bytes != 0) return;
  form.row_bytes = act_bytes(kind, k_);
  const size_t bytes = form.row_bytes * rows;
  const int copies = each_prepares(rows) ? threads : 1;
  std::byte* all = carver.take<std::byte>(bytes * copies);
  form.rows = all && copies > 1 ? all + bytes * id : all;
}

void Activations::set(int row, const float* x) const {
  for (int i = 0; i < kKinds; ++i) {
    const Form& form = forms_[i];
    if (form.row_bytes == 0) continue;
    quantise_row(static_cast<ActKind>(i), x, k_, form.rows + form.row_bytes * row);
  }
}

void Activations::multiply(const Slice& slice, int row, int rows, float* y, int ldy) const {
  const Form& form = forms_[act_kind(slice.part.format)];
  multiply_slice(slice, form.rows + form.row_bytes * row, nullptr, rows, y, ldy);
}

void Activations::gather(const Slice& slice, const int32_t* order, int rows, float* y,
                         int ldy) const {
  multiply_slice(slice, forms_[act_kind(slice.part.format)].rows, order, rows, y, ldy);
}

}  // namespace strata
