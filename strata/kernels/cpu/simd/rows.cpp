// Norm, gate and rotation of one row, and the table of this instruction set.
#include <cmath>

#include "floats.h"
#include "row_arithmetic.h"
#include "rows.h"

namespace strata::STRATA_ISA {

namespace {

constexpr float kLog2e = 1.44269504f;

// x * sigmoid(gate). Below -87 the quotient is a subnormal number at most; the clamp
// keeps 2^x finite.
Lanes sigmoid_times(Lanes x, Lanes gate) {
  Lanes power = min(mul(gate, splat(-kLog2e)), splat(126.0f));
  return div(x, add(splat(1.0f), exp2(power)));
}

Lanes silu(Lanes g) { return sigmoid_times(g, g); }

// Four running sums, then their lanes: the order depends on n alone.
float dot(const float* x, const float* y, int n) {
  Lanes a = zero(), b = zero(), c = zero(), d = zero();
  int i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    a = fma(load(x + i), load(y + i), a);
    b = fma(load(x + i + kLanes), load(y + i + kLanes), b);
    c = fma(load(x + i + 2 * kLanes), load(y + i + 2 * kLanes), c);
    d = fma(load(x + i + 3 * kLanes), load(y + i + 3 * kLanes), d);
  }
  for (; i + kLanes <= n; i += kLanes) a = fma(load(x + i), load(y + i), a);
  if (i < n) b = fma(load_part(x + i, n - i), load_part(y + i, n - i), b);
  return sum(add(add(a, b), add(c, d)));
}

float sum_of_squares(const float* x, int n) { return dot(x, x, n); }

void rms_norm(const float* x, const float* weight, float eps, int n, float* out) {
  float mean = sum_of_squares(x, n) / static_cast<float>(n);
  Lanes factor = splat(1.0f / std::sqrt(mean + eps));
  int i = 0;
  for (; i + kLanes <= n; i += kLanes)
    store(out + i, mul(mul(load(x + i), factor), load(weight + i)));
  if (i < n) {
    Lanes v = mul(mul(load_part(x + i, n - i), factor), load_part(weight + i, n - i));
    store_part(out + i, v, n - i);
  }
}

void add_row(float* x, const float* y, int n) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) store(x + i, add(load(x + i), load(y + i)));
  if (i < n) store_part(x + i, add(load_part(x + i, n - i), load_part(y + i, n - i)), n - i);
}

void multiply(float* x, float factor, int n) {
  Lanes f = splat(factor);
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) store(x + i, mul(load(x + i), f));
  if (i < n) store_part(x + i, mul(load_part(x + i, n - i), f), n - i);
}

void add_scaled(float* x, const float* y, float factor, int n) {
  Lanes f = splat(factor);
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) store(x + i, fma(load(y + i), f, load(x + i)));
  if (i < n) store_part(x + i, fma(load_part(y + i, n - i), f, load_part(x + i, n - i)), n - i);
}

void mix(const float* x, const float* weight, float eps, const float* gate, int streams, int n,
         float* out) {
  const Lanes part = splat(1.0f / static_cast<float>(streams));
  for (int s = 0; s < streams; ++s, x += n, weight += n, gate += n) {
    const float mean = sum_of_squares(x, n) / static_cast<float>(n);
    const Lanes factor = splat(1.0f / std::sqrt(mean + eps));
    for (int i = 0; i < n; i += kLanes) {
      const int here = n - i < kLanes ? n - i : kLanes;
      Lanes normed = mul(mul(load_part(x + i, here), factor), load_part(weight + i, here));
      Lanes sum = mul(sigmoid_times(normed, load_part(gate + i, here)), part);
      if (s) sum = add(load_part(out + i, here), sum);
      store_part(out + i, sum, here);
    }
  }
}

void sigmoid_mul(float* x, const float* gate, int n) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes)
    store(x + i, sigmoid_times(load(x + i), load(gate + i)));
  if (i < n) {
    Lanes v = sigmoid_times(load_part(x + i, n - i), load_part(gate + i, n - i));
    store_part(x + i, v, n - i);
  }
}

void swish_mul(float* x, const float* gate, int n) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) store(x + i, mul(load(x + i), silu(load(gate + i))));
  if (i < n) {
    Lanes v = mul(load_part(x + i, n - i), silu(load_part(gate + i, n - i)));
    store_part(x + i, v, n - i);
  }
}

void unit(float* x, float least, float scale, int n) {
  multiply(x, scale / std::sqrt(sum_of_squares(x, n) + least), n);
}


void silu_mul(float* gate, const float* up, int n) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes)
    store(gate + i, mul(silu(load(gate + i)), load(up + i)));
  if (i < n) {
    Lanes v = mul(silu(load_part(gate + i, n - i)), load_part(up + i, n - i));
    store_part(gate + i, v, n - i);
  }
}

void rotate(float* head, const float* cosines, const float* sines, int pairs) {
  float* far = head + pairs;
  int i = 0;
  for (; i + kLanes <= pairs; i += kLanes) {
    Lanes a = load(head + i), b = load(far + i), c = load(cosines + i), s = load(sines + i);
    store(head + i, sub(mul(a, c), mul(b, s)));
    store(far + i, add(mul(b, c), mul(a, s)));
  }
  if (i < pairs) {
    int n = pairs - i;
    Lanes a = load_part(head + i, n), b = load_part(far + i, n);
    Lanes c = load_part(cosines + i, n), s = load_part(sines + i, n);
    store_part(head + i, sub(mul(a, c), mul(b, s)), n);
    store_part(far + i, add(mul(b, c), mul(a, s)), n);
  }
}

}  // namespace

extern const RowKernels row_kernels;
const RowKernels row_kernels = {
    rms_norm, add_row,  add_scaled, mix,      sigmoid_mul, swish_mul,    dot,     unit,   silu_mul,
    rotate,   multiply, narrow,     convolve, scan,        score_blocks, largest, attend, merge,
    finish};

}  // namespace strata::STRATA_ISA
