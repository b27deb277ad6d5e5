// The arithmetic that runs along a sequence: a causal convolution and the delta rule.
//
// Both read and write a state of the sequence and work token by token, so it makes no
// difference, not in one bit, into which parts a sequence is cut. Part of RowKernels (rows.h).
#pragma once
#include <cstddef>

namespace strata {

// A convolution over `n` neighbouring channels: tap j sees the token (kernel - 1 - j) *
// dilation earlier.
struct Convolution {
  const float* taps;  // [kernel], `stride` apart; the newest token last
  size_t stride;
  int kernel, dilation, n;
  float* window;  // the tokens before, oldest first, [(kernel - 1) * dilation], window_stride apart
  size_t window_stride;
};
constexpr int window_of(const Convolution& c) { return (c.kernel - 1) * c.dilation; }

// Columns of a head's state that are scanned together: they stay in the first cache.
inline constexpr int kPanel = 32;

// The gated delta rule for some columns of one head's state:
//   s *= keep; s += k (beta (v - k s)); out = q s.
struct Scan {
  const float* q;  // [dim] of the first token, `stride` floats from token to token
  const float* k;
  float* v;        // [columns]; becomes out
  size_t stride;
  const float* keep;  // one of each token, `gate_stride` apart
  const float* beta;
  size_t gate_stride;
  float* state;  // [dim, columns], its rows dim apart
  int dim, columns, count;
};

}  // namespace strata
