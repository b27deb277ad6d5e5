#include "experts.h"

#include "rows.h"
#include "slices.h"

namespace strata {

namespace {

constexpr size_t kTaskBytes = 1 << 17;  // of weights

// Tiles in a slice of `together` matrices like this one, read by one task.
int tiles_each(const ExpertMatrix& matrix, int together, int experts, int threads) {
  const Linear one = matrix.of(0);
  const size_t bytes = tile_bytes(one.format, one.k, tile_rows()) * together;
  const int few = experts * tiles_of(one) / (8 * threads);  // so that every thread finds tasks
  return std::max(1, std::min(static_cast<int>(kTaskBytes / bytes), few));
}

}  // namespace

Cut::Cut(const ExpertForm& form, int experts, int threads)
    : wide_tiles(tiles_each(form.gate, 2, experts, threads)),
      down_tiles(tiles_each(form.down, 1, experts, threads)),
      wide_slices(slice_count(form.gate.of(0), wide_tiles)),
      down_slices(slice_count(form.down.of(0), down_tiles)) {}

Group::Group(const ExpertForm& form, Carver& carver, int rows, int units)
    : form_(form),
      units_(units),
      inner_(carver, rows, 0, 1, form.down.k, {form.down.format}),
      gated_(carver.take<float>(static_cast<size_t>(rows) * form.gate.n)),
      out_(carver.take<float>(static_cast<size_t>(rows) * form.down.n)),
      pending_(carver.take<std::atomic<int>>(units)) {}

void Group::widen(const Batch& batch, const Cut& cut, int slice, const Activations& in,
                  float* own) const {
  const RowKernels& kernels = row_kernels();
  const Slice gate = slice_at(form_.gate.of(batch.expert), cut.wide_tiles, slice);
  const Slice up = slice_at(form_.up.of(batch.expert), cut.wide_tiles, slice);
  const int columns = gate.part.n, inner = form_.gate.n;
  float* gated = gated_ + static_cast<size_t>(batch.first) * inner;
  for (int row = 0; row < batch.rows; row += kRows) {
    const int rows = std::min(kRows, batch.rows - row);
    float* y = gated + static_cast<size_t>(row) * inner + gate.first;
    in.gather(gate, batch.tokens + row, rows, y, inner);
    in.gather(up, batch.tokens + row, rows, own, columns);
    for (int r = 0; r < rows; ++r)
      kernels.silu_mul(y + static_cast<size_t>(r) * inner, own + r * columns, columns);
  }
  if (pending_[batch.unit].fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  for (int row = 0; row < batch.rows; ++row)
    inner_.set(batch.first + row, gated + static_cast<size_t>(row) * inner);
}

void Group::narrow(const Batch& batch, const Cut& cut, int slice) const {
  const Slice down = slice_at(form_.down.of(batch.expert), cut.down_tiles, slice);
  const int hidden = form_.down.n;
  float* y = out_ + static_cast<size_t>(batch.first) * hidden + down.first;
  inner_.multiply(down, batch.first, batch.rows, y, hidden);
}

}  // namespace strata
