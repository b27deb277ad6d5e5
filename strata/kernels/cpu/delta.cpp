#include "delta.h"

#include <algorithm>
#include <cmath>

#include "activations.h"
#include "rows.h"
#include "slices.h"
#include "states.h"

namespace strata {

namespace {

constexpr int kTokens = 256;  // of a block
constexpr int kRows = 32;     // whose part of a sum a thread holds at a time
constexpr float kLeast = 1e-6f;  // keeps the length of a zero vector from dividing

size_t line(size_t floats) { return (floats + 15) / 16 * 16; }

}  // namespace

// What a block of tokens needs, as one thread sees it.
struct Delta::Work {
  Work(const DeltaWeights& w, const Step& step, Carver& carver, int first, int id, int threads)
      : step(step),
        first(first),
        tokens(std::min(kTokens, step.count - first)),
        rows(rows_between(step, first, first + tokens)),
        in(carver, tokens, id, threads, {&w.qkv, &w.z, &w.beta, &w.alpha}),
        mixed_in(carver, tokens, id, threads, {&w.out}),
        in_tiles(slice_tiles(w.qkv, tiles_of(w.qkv) + tiles_of(w.z), threads)),
        out_tiles(slice_tiles(w.out, tiles_of(w.out), threads)),
        qkv(carver.take<float>(static_cast<size_t>(tokens) * w.qkv.n)),
        z(carver.take<float>(static_cast<size_t>(tokens) * w.z.n)),
        beta(carver.take<float>(static_cast<size_t>(tokens) * w.v_heads)),
        keep(carver.take<float>(static_cast<size_t>(tokens) * w.v_heads)) {
    const size_t columns = static_cast<size_t>(std::max(in_tiles, out_tiles)) * tile_rows();
    const size_t each = line(std::max<size_t>(
        {columns * kRows, static_cast<size_t>(w.port.hidden), static_cast<size_t>(w.out.k),
         static_cast<size_t>(w.dim) * kPanel, static_cast<size_t>(w.dim) * w.kernel}));
    float* all = carver.take<float>(each * threads);
    own = all ? all + each * id : nullptr;
  }

  // Rows of single tokens: tasks are then small, and several make one.
  bool decoding() const { return tokens <= 2 * (rows.end - rows.begin); }

  const Step& step;
  int first, tokens;
  RowRange rows;
  Activations in, mixed_in;
  int in_tiles, out_tiles;  // of a slice
  float* qkv;               // [tokens, channels]; v becomes the rule's output
  float* z;                 // [tokens, v_heads * dim]
  float* beta;              // [tokens, v_heads]
  float* keep;              // [tokens, v_heads]
  float* own;               // the thread's: a row, a part of a sum, a panel or a window
};

void Delta::prepare(const Step& step) const { require_states(step); }

size_t Delta::scratch(const Step& step, int threads) const {
  Carver carver(nullptr);
  Work(weights_, step, carver, 0, 0, threads);
  return carver.used();
}

void Delta::run(Member& member, const Step& step, std::byte* scratch) const {
  for (int first = 0; first < step.count; first += kTokens) {
    Carver carver(scratch);
    block(member, Work(weights_, step, carver, first, member.id(), member.size()));
  }
}

void Delta::block(Member& member, const Work& work) const {
  const DeltaWeights& w = weights_;
  project(member, work);

  const int rows = work.rows.end - work.rows.begin;
  const int heads = 2 * w.k_heads + w.v_heads;
  const int together = work.decoding() ? 8 : 1;
  const int parts = (heads + together - 1) / together;
  member.share(work.tokens + rows * parts, [&](int task) {
    if (task < work.tokens) return gates(work, task);
    task -= work.tokens;
    const int first = task % parts * together;
    for (int head = first; head < std::min(heads, first + together); ++head)
      convolve(work, work.rows.begin + task / parts, head);
  });

  const int each = work.decoding() ? w.dim : kPanel;  // columns of a task
  const int panels = (w.dim + each - 1) / each, tasks = w.v_heads * panels;
  member.share(rows * tasks, [&](int task) {
    const int row = work.rows.begin + task / tasks, at = task % panels * each;
    scan(work, row, task % tasks / panels, at, std::min(each, w.dim - at));
  });

  output(member, work);
}

// h, then everything that is a product with it.
void Delta::project(Member& member, const Work& work) const {
  const DeltaWeights& w = weights_;
  auto enter = [&](int row) {
    w.port.enter(work.step, work.first + row, work.own);
    work.in.set(row, work.own);
  };
  const Linear* parts[] = {&w.qkv, &w.z, &w.beta, &w.alpha};
  float* const results[] = {work.qkv, work.z, work.beta, work.keep};
  int counts[4], total = 0;
  for (int i = 0; i < 4; ++i) total += counts[i] = slice_count(*parts[i], work.in_tiles);
  share_after_rows(member, work.tokens, enter, total, [&](int task) {
    int i = 0;
    while (task >= counts[i]) task -= counts[i++];
    Slice slice = slice_at(*parts[i], work.in_tiles, task);
    work.in.multiply(slice, 0, work.tokens, results[i] + slice.first, parts[i]->n);
  });
}

// alpha -> keep and beta -> its sigmoid, of one token.
void Delta::gates(const Work& work, int token) const {
  const int heads = weights_.v_heads;
  float* keep = work.keep + static_cast<size_t>(token) * heads;
  float* beta = work.beta + static_cast<size_t>(token) * heads;
  for (int h = 0; h < heads; ++h) {
    const float alpha = keep[h] + weights_.dt_bias[h];
    const float plus = alpha > 20.0f ? alpha : std::log1p(std::exp(alpha));
    keep[h] = std::exp(weights_.decay[h] * plus);
    beta[h] = 1.0f / (1.0f + std::exp(-beta[h]));
  }
}

// The convolution of one head of q, k or v over the row's tokens; q and k then get length 1.
void Delta::convolve(const Work& work, int row, int head) const {
  const DeltaWeights& w = weights_;
  const RowKernels& kernels = row_kernels();
  const int dim = w.dim, channels = w.qkv.n, at = head * dim;
  float* const window = memory_.conv + work.step.state_slots[row] * memory_.conv_slot + at;
  const Convolution convolution{w.conv + at, static_cast<size_t>(channels), w.kernel, 1, dim,
                                window,      static_cast<size_t>(channels)};
  const float scale = head < w.k_heads ? 1.0f / std::sqrt(static_cast<float>(dim)) : 1.0f;
  auto run = [&](int from, int to) {
    float* x = work.qkv + static_cast<size_t>(from - work.first) * channels + at;
    kernels.convolve(convolution, x, channels, to - from, work.own);
    for (int t = from; t < to; ++t, x += channels) {
      kernels.sigmoid_mul(x, x, dim);
      if (head < 2 * w.k_heads) kernels.unit(x, kLeast, scale, dim);
    }
  };
  auto copy = [&](int slot) {
    for (int i = 0; i < window_of(convolution); ++i)
      std::copy_n(window + static_cast<size_t>(i) * channels, dim,
                  memory_.conv + slot * memory_.conv_slot + static_cast<size_t>(i) * channels + at);
  };
  each_part(work.step, row, work.first, work.first + work.tokens, run, copy);
}

// The rule for the columns [at, at + columns) of a value head's state, over the row's tokens.
void Delta::scan(const Work& work, int row, int head, int at, int columns) const {
  const DeltaWeights& w = weights_;
  const int dim = w.dim;
  const int key = w.tiled ? head % w.k_heads : head / (w.v_heads / w.k_heads);
  const size_t column = static_cast<size_t>(head) * dim * dim + at;
  float* const state = memory_.state + work.step.state_slots[row] * memory_.state_slot + column;
  auto run = [&](int from, int to) {
    float* x = work.qkv + static_cast<size_t>(from - work.first) * w.qkv.n;
    const size_t gate = static_cast<size_t>(from - work.first) * w.v_heads + head;
    row_kernels().scan({x + key * dim, x + (w.k_heads + key) * dim,
                        x + (2 * w.k_heads + head) * dim + at, static_cast<size_t>(w.qkv.n),
                        work.keep + gate, work.beta + gate, static_cast<size_t>(w.v_heads), state,
                        dim, columns, to - from},
                       work.own);
  };
  auto copy = [&](int slot) {
    float* into = memory_.state + slot * memory_.state_slot + column;
    for (int i = 0; i < dim; ++i)
      std::copy_n(state + static_cast<size_t>(i) * dim, columns, into + static_cast<size_t>(i) * dim);
  };
  each_part(work.step, row, work.first, work.first + work.tokens, run, copy);
}

// Norm and gate of each head, then the output projection.
void Delta::output(Member& member, const Work& work) const {
  const DeltaWeights& w = weights_;
  const RowKernels& kernels = row_kernels();
  const int inner = w.out.k, dim = w.dim;
  auto gate = [&](int row) {
    const float* mixed = work.qkv + static_cast<size_t>(row) * w.qkv.n + w.qkv.n - inner;
    for (int at = 0; at < inner; at += dim)
      kernels.rms_norm(mixed + at, w.norm, w.eps, dim, work.own + at);
    const float* z = work.z + static_cast<size_t>(row) * inner;
    (w.sigmoid_gate ? kernels.sigmoid_mul : kernels.swish_mul)(work.own, z, inner);
    work.mixed_in.set(row, work.own);
  };
  share_after_rows(member, work.tokens, gate, slice_count(w.out, work.out_tiles), [&](int task) {
    if (task == 0) count_written(work.step, work.first, work.first + work.tokens);
    Slice slice = slice_at(w.out, work.out_tiles, task);
    for (int row = 0; row < work.tokens; row += kRows)
      w.port.add(work.step, work.first + row, work.mixed_in, slice, row,
                 std::min(kRows, work.tokens - row), work.own);
  });
}

}  // namespace strata
