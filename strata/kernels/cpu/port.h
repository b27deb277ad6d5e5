// How a sublayer takes its input from the residual stream and adds its output to it.
//
// Two forms (residual.py): h = rms_norm(x), x += y; or several streams, which a Mixer
// (mixer.h) just before the sublayer has weighed and given shares. A sublayer calls `enter`
// for a token before it calls `leave` for it, and knows nothing of the form.
#pragma once
#include "activations.h"
#include "program.h"
#include "slices.h"

namespace strata {

struct Port {
  const float* norm;  // [width]
  float eps;
  int hidden;   // floats of h and y
  int streams;  // 0: a plain norm, no Mixer

  int width() const { return streams ? streams * hidden : hidden; }
  // h of a token of the step -> out [hidden].
  void enter(const Step& step, int token, float* out) const;
  // The same of the i-th sampled token, behind a Mixer that reads those alone.
  void enter_sampled(const Step& step, int i, float* out) const;
  // Adds y, the columns [first, first + n) of the token's output.
  void leave(const Step& step, int token, int first, const float* y, int n) const;
  // Adds the slice's product with rows [row, row + rows) of `in`, those of the tokens from
  // `token` on. `sums` has room for rows * columns floats.
  void add(const Step& step, int token, const Activations& in, const Slice& slice, int row,
           int rows, float* sums) const;
};

}  // namespace strata
