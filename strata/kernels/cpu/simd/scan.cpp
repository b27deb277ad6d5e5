// The convolution and the delta rule along the tokens of a sequence.
//
// Every lane is a channel, or a column of the state, by itself, and a column's sums over the
// state's rows are one chain, ascending: so the bits of a token depend on the tokens before it
// and on nothing else, whichever template instance computes them.
#include "scan.h"

#include <cmath>

#include "floats.h"
#include "row_arithmetic.h"

namespace strata::STRATA_ISA {

namespace {

inline Lanes load_some(const float* p, int n) { return n >= kLanes ? load(p) : load_part(p, n); }
inline void store_some(float* p, Lanes v, int n) {
  if (n >= kLanes) return store(p, v);
  store_part(p, v, n);
}

// The state -> panel [dim, kVectors * kLanes], and k * state.
template <int kVectors>
void begin(const Scan& scan, float* panel, Lanes* seen) {
  for (int j = 0; j < kVectors; ++j) seen[j] = zero();
  for (int i = 0; i < scan.dim; ++i) {
    const float* row = scan.state + static_cast<size_t>(i) * scan.dim;
    const Lanes k = splat(scan.k[i]);
    for (int j = 0; j < kVectors; ++j) {
      Lanes s = load_some(row + j * kLanes, scan.columns - j * kLanes);
      store(panel + (i * kVectors + j) * kLanes, s);
      seen[j] = fma(k, s, seen[j]);
    }
  }
}

// One token: the state moves on, v becomes the token's output. `seen` is k * state before the
// token and, unless it is the last one, afterwards that of the token that follows. The last one
// puts the state back where it belongs.
template <int kVectors, bool kLast>
void advance(const Scan& scan, int token, float* panel, Lanes* seen) {
  const float* q = scan.q + token * scan.stride;
  const float* k = scan.k + token * scan.stride;
  const float* next = k + scan.stride;
  float* v = scan.v + token * scan.stride;
  const Lanes keep = splat(scan.keep[token * scan.gate_stride]);
  const Lanes beta = splat(scan.beta[token * scan.gate_stride]);
  Lanes change[kVectors], out[kVectors];
  for (int j = 0; j < kVectors; ++j) {
    Lanes value = load_some(v + j * kLanes, scan.columns - j * kLanes);
    change[j] = mul(beta, sub(value, mul(keep, seen[j])));
    out[j] = seen[j] = zero();
  }
  for (int i = 0; i < scan.dim; ++i) {
    const Lanes k_i = splat(k[i]), q_i = splat(q[i]);
    Lanes next_i = zero();
    if constexpr (!kLast) next_i = splat(next[i]);
    float* row = panel + i * kVectors * kLanes;
    for (int j = 0; j < kVectors; ++j) {
      Lanes s = fma(k_i, change[j], mul(keep, load(row + j * kLanes)));
      out[j] = fma(q_i, s, out[j]);
      if constexpr (kLast) {
        float* home = scan.state + static_cast<size_t>(i) * scan.dim + j * kLanes;
        store_some(home, s, scan.columns - j * kLanes);
      } else {
        store(row + j * kLanes, s);
        seen[j] = fma(next_i, s, seen[j]);
      }
    }
  }
  for (int j = 0; j < kVectors; ++j)
    store_some(v + j * kLanes, out[j], scan.columns - j * kLanes);
}

template <int kVectors>
void scan_panel(const Scan& scan, float* panel) {
  Lanes seen[kVectors];
  begin<kVectors>(scan, panel, seen);
  for (int t = 0; t + 1 < scan.count; ++t) advance<kVectors, false>(scan, t, panel, seen);
  advance<kVectors, true>(scan, scan.count - 1, panel, seen);
}

// A single token: the state is passed over twice where it lies. The sums are those of a panel.
template <int kVectors>
void single(const Scan& scan) {
  constexpr int kAhead = 8;  // rows of the state
  Lanes seen[kVectors], change[kVectors], out[kVectors];
  for (int j = 0; j < kVectors; ++j) out[j] = seen[j] = zero();
  for (int i = 0; i < scan.dim; ++i) {
    const float* row = scan.state + static_cast<size_t>(i) * scan.dim;
    const Lanes k = splat(scan.k[i]);
    for (int j = 0; j < kVectors; ++j) {
      __builtin_prefetch(row + kAhead * scan.dim + j * kLanes);
      seen[j] = fma(k, load(row + j * kLanes), seen[j]);
    }
  }
  const Lanes keep = splat(*scan.keep), beta = splat(*scan.beta);
  for (int j = 0; j < kVectors; ++j)
    change[j] = mul(beta, sub(load(scan.v + j * kLanes), mul(keep, seen[j])));
  for (int i = 0; i < scan.dim; ++i) {
    float* row = scan.state + static_cast<size_t>(i) * scan.dim;
    const Lanes k = splat(scan.k[i]), q = splat(scan.q[i]);
    for (int j = 0; j < kVectors; ++j) {
      const Lanes s = fma(k, change[j], mul(keep, load(row + j * kLanes)));
      out[j] = fma(q, s, out[j]);
      store(row + j * kLanes, s);
    }
  }
  for (int j = 0; j < kVectors; ++j) store(scan.v + j * kLanes, out[j]);
}

// One token of a convolution: `past` holds the window as a ring whose oldest row is `oldest`;
// x [n] becomes the result and takes the oldest row's place.
void convolve_token(const Convolution& c, float* past, int oldest, float* x) {
  const int window = window_of(c);
  for (int i = 0; i < c.n; i += kLanes) {
    const int here = c.n - i;
    const Lanes raw = load_some(x + i, here);
    Lanes sum = zero();
    for (int tap = 0; tap < c.kernel - 1; ++tap) {
      int row = oldest + tap * c.dilation;
      if (row >= window) row -= window;
      sum = fma(load_some(c.taps + tap * c.stride + i, here),
                load_some(past + static_cast<size_t>(row) * c.n + i, here), sum);
    }
    sum = fma(load_some(c.taps + (c.kernel - 1) * c.stride + i, here), raw, sum);
    if (window) store_some(past + static_cast<size_t>(oldest) * c.n + i, raw, here);
    store_some(x + i, sum, here);
  }
}

}  // namespace

void scan(const Scan& scan, float* panel) {
  int at = 0;
  if (scan.count == 1) {
    constexpr int kWide = kRegisters == 32 ? 8 : 4;
    for (; at + kWide * kLanes <= scan.columns; at += kWide * kLanes) {
      Scan part = scan;
      part.v += at;
      part.state += at;
      single<kWide>(part);
    }
  }
  // Two registers of columns at a time: with more, the sums no longer fit the registers of AVX2.
  for (; at < scan.columns; at += 2 * kLanes) {
    Scan part = scan;
    part.v += at;
    part.state += at;
    part.columns = scan.columns - at < 2 * kLanes ? scan.columns - at : 2 * kLanes;
    part.columns > kLanes ? scan_panel<2>(part, panel) : scan_panel<1>(part, panel);
  }
}

void convolve(const Convolution& c, float* x, size_t stride, int count, float* past) {
  const int window = window_of(c);
  for (int row = 0; row < window; ++row)
    std::memcpy(past + static_cast<size_t>(row) * c.n, c.window + row * c.window_stride,
                c.n * sizeof(float));
  int oldest = 0;
  for (int t = 0; t < count; ++t, x += stride) {
    convolve_token(c, past, oldest, x);
    if (++oldest >= window) oldest = 0;
  }
  for (int row = 0; row < window; ++row) {
    int from = oldest + row;
    if (from >= window) from -= window;
    std::memcpy(c.window + row * c.window_stride, past + static_cast<size_t>(from) * c.n,
                c.n * sizeof(float));
  }
}

}  // namespace strata::STRATA_ISA
