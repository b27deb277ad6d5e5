#include "port.h"

#include "rows.h"

namespace strata {

namespace {

// `row`: of what the Mixer left.
void enter_row(const Port& port, const Step& step, int token, int row, float* out) {
  const int width = port.width(), streams = port.streams;
  const float* x = step.x + static_cast<size_t>(token) * width;
  if (!streams) return row_kernels().rms_norm(x, port.norm, port.eps, port.hidden, out);
  const float* mixed = step.mixed + static_cast<size_t>(row) * (width + streams);
  row_kernels().mix(x, port.norm, port.eps, mixed, streams, port.hidden, out);
}

}  // namespace

void Port::enter(const Step& step, int token, float* out) const {
  enter_row(*this, step, token, token, out);
}

void Port::enter_sampled(const Step& step, int i, float* out) const {
  enter_row(*this, step, step.sample[i], i, out);
}

void Port::leave(const Step& step, int token, int first, const float* y, int n) const {
  float* x = step.x + static_cast<size_t>(token) * width() + first;
  if (!streams) return row_kernels().add(x, y, n);
  const float* shares = step.mixed + static_cast<size_t>(token) * (width() + streams) + width();
  for (int i = 0; i < streams; ++i)
    row_kernels().add_scaled(x + static_cast<size_t>(i) * hidden, y, shares[i], n);
}

void Port::add(const Step& step, int token, const Activations& in, const Slice& slice, int row,
               int rows, float* sums) const {
  const int columns = slice.part.n;
  in.multiply(slice, row, rows, sums, columns);
  for (int r = 0; r < rows; ++r)
    leave(step, token + r, slice.first, sums + static_cast<size_t>(r) * columns, columns);
}

}  // namespace strata
