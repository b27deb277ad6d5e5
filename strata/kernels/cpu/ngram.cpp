#include "ngram.h"

#include <algorithm>
#include <cmath>

#include "activations.h"
#include "rows.h"
#include "slices.h"
#include "states.h"

namespace strata {

namespace {

constexpr int kTokens = 256;         // of a block
constexpr int kChannels = 128;       // of a part of the convolution
constexpr int kManyChannels = 1024;  // where a row has one token
constexpr float kLeast = 1e-6f;      // of a match

}  // namespace

// What a block of tokens needs, as one thread sees it.
struct Ngram::Work {
  Work(const NgramWeights& w, const Step& step, Carver& carver, int first, int id, int threads)
      : step(step),
        first(first),
        tokens(std::min(kTokens, step.count - first)),
        rows(rows_between(step, first, first + tokens)),
        in(carver, tokens, id, threads, {&w.key, &w.value}),
        tiles(slice_tiles(w.key, tiles_of(w.key) + tiles_of(w.value), threads)),
        keys(carver.take<float>(static_cast<size_t>(tokens) * w.key.n)),
        normed(carver.take<float>(static_cast<size_t>(tokens) * w.key.n)),
        values(carver.take<float>(static_cast<size_t>(tokens) * w.value.n)) {
    const int window = (w.kernel - 1) * w.dilation;
    size_t each = std::max({w.key.k, w.value.n, window * kManyChannels});
    each = (each + 15) / 16 * 16;
    float* all = carver.take<float>(each * threads);
    own = all ? all + each * id : nullptr;
  }

  const Step& step;
  int first, tokens;
  RowRange rows;
  Activations in;
  int tiles;      // of a slice
  float* keys;    // [tokens, width], then the gated values
  float* normed;  // [tokens, width], the convolution's input, then its result
  float* values;  // [tokens, hidden]
  float* own;     // the thread's: an embedding, a stream, or a window
};

void Ngram::prepare(const Step& step) const { require_states(step); }

size_t Ngram::scratch(const Step& step, int threads) const {
  Carver carver(nullptr);
  Work(weights_, step, carver, 0, 0, threads);
  return carver.used();
}

void Ngram::run(Member& member, const Step& step, std::byte* scratch) const {
  for (int first = 0; first < step.count; first += kTokens) {
    Carver carver(scratch);
    block(member, Work(weights_, step, carver, first, member.id(), member.size()));
  }
}

void Ngram::block(Member& member, const Work& work) const {
  const int rows = work.rows.end - work.rows.begin, streams = weights_.streams;
  project(member, work);
  member.share(rows + work.tokens * streams, [&](int task) {
    if (task < rows) return remember(work, work.rows.begin + task);
    gate(work, (task - rows) / streams, (task - rows) % streams);
  });
  const int channels = work.tokens <= 2 * rows ? kManyChannels : kChannels;
  const int parts = (width() + channels - 1) / channels;
  member.share(rows * parts, [&](int task) {
    const int at = task % parts * channels;
    convolve(work, work.rows.begin + task / parts, at, std::min(channels, width() - at));
  });
  if (work.step.capture_count)
    member.share(1, [&](int) { count_written(work.step, work.first, work.first + work.tokens); });
}

void Ngram::project(Member& member, const Work& work) const {
  const Linear &key = weights_.key, &value = weights_.value;
  const int keys = slice_count(key, work.tiles);
  auto embedded = [&](int row) {
    embed(work, work.first + row);
    work.in.set(row, work.own);
  };
  const int total = keys + slice_count(value, work.tiles);
  share_after_rows(member, work.tokens, embedded, total, [&](int task) {
    const bool first = task < keys;
    Slice slice = slice_at(first ? key : value, work.tiles, first ? task : task - keys);
    float* y = (first ? work.keys : work.values) + slice.first;
    work.in.multiply(slice, 0, work.tokens, y, first ? key.n : value.n);
  });
}

void Ngram::rows(const Step& step, int64_t* rows) const {
  require_states(step);
  for (int row = 0; row < step.rows; ++row)
    for (int token = step.row_starts[row]; token < step.row_starts[row + 1]; ++token)
      each_row(step, row, step.row_starts[row], token, [&](int64_t number) { *rows++ = number; });
}

// The table's rows for one token, side by side -> work.own.
void Ngram::embed(const Work& work, int token) const {
  const NgramWeights& w = weights_;
  const int floats = static_cast<int>(w.sizes.size()) * w.columns;
  float* out = work.own;
  if (w.fetched) {
    const int format = w.table.front().format;
    const size_t bytes = row_bytes(format, w.columns), heads = w.sizes.size();
    for (size_t head = 0; head < heads; ++head, out += w.columns)
      dequantise_row(format, w.fetched + bytes * slots_[token * heads + head], w.columns, out);
    return row_kernels().multiply(work.own, scale_, floats);
  }
  const int row = rows_between(work.step, token, token + 1).begin;
  // The history in the state ends where this block's part of the row begins.
  const int begin = std::max(work.first, work.step.row_starts[row]);
  each_row(work.step, row, begin, token, [&](int64_t number) {
    lookup(number, out);
    out += w.columns;
  });
  row_kernels().multiply(work.own, scale_, floats);
}

// take(row of the table) for each head; the history in the state ends at the token `begin`.
template <class Take>
void Ngram::each_row(const Step& step, int row, int begin, int token, Take take) const {
  const NgramWeights& w = weights_;
  const int heads = static_cast<int>(w.sizes.size()) / past();
  uint64_t hash = 0;
  bool ended = false;
  for (int back = 0, head = 0; back <= past(); ++back) {
    const int64_t seen = token_before(step, row, begin, token, back);
    ended = ended || seen < 0;
    hash ^= static_cast<uint64_t>(ended ? w.eos : seen) * static_cast<uint64_t>(w.multipliers[back]);
    ended = ended || (back > 0 && seen == w.eos);
    for (int last = back * heads; head < last; ++head)
      take(w.offsets[head] + static_cast<int64_t>(hash % static_cast<uint64_t>(w.sizes[head])));
  }
}

// -1 where the sequence had not begun.
int64_t Ngram::token_before(const Step& step, int row, int begin, int token, int back) const {
  if (token - back >= begin) return step.tokens[token - back];
  const int32_t* history = memory_.history + step.state_slots[row] * memory_.history_slot;
  return static_cast<int64_t>(history[past() - (begin - (token - back))]) - 1;
}

void Ngram::lookup(int64_t row, float* out) const {
  const auto after = std::upper_bound(
      weights_.table.begin(), weights_.table.end(), row,
      [](int64_t value, const TablePart& part) { return value < part.first; });
  const TablePart& part = *(after - 1);
  const size_t skipped = row_bytes(part.format, weights_.columns) *
                         static_cast<size_t>(row - part.first);
  dequantise_row(part.format, part.rows + skipped, weights_.columns, out);
}

// The value for one stream of a token, times the match of its key and the stream; and the norm
// of that.
void Ngram::gate(const Work& work, int token, int stream) const {
  const NgramWeights& w = weights_;
  const RowKernels& kernels = row_kernels();
  const int hidden = w.value.n, at = stream * hidden;
  const size_t place = static_cast<size_t>(token) * width() + at;
  float* key = work.keys + place;
  const float* x = work.step.x + static_cast<size_t>(work.first) * width() + place;
  kernels.rms_norm(x, w.norm_query + at, w.eps, hidden, work.own);
  kernels.rms_norm(key, w.norm_key + at, w.eps, hidden, key);
  const float match = kernels.dot(key, work.own, hidden) / std::sqrt(static_cast<float>(hidden));
  float root = std::sqrt(std::max(std::fabs(match), kLeast));
  root = match > 0 ? root : match < 0 ? -root : 0.0f;
  std::copy_n(work.values + static_cast<size_t>(token) * hidden, hidden, key);
  kernels.multiply(key, 1.0f / (1.0f + std::exp(-root)), hidden);
  kernels.rms_norm(key, w.norm_conv + at, w.eps, hidden, work.normed + place);
}

// Moves the row's history behind its tokens of this block.
void Ngram::remember(const Work& work, int row) const {
  int32_t* history = memory_.history + work.step.state_slots[row] * memory_.history_slot;
  auto run = [&](int from, int to) {
    for (int i = 0; i < past(); ++i) {
      const int token = to - past() + i;
      history[i] = token >= from ? work.step.tokens[token] + 1 : history[i + to - from];
    }
  };
  auto copy = [&](int slot) {
    std::copy_n(history, past(), memory_.history + slot * memory_.history_slot);
  };
  each_part(work.step, row, work.first, work.first + work.tokens, run, copy);
}

// The convolution of some channels over the row's tokens; it and the gated value go to x.
void Ngram::convolve(const Work& work, int row, int at, int channels) const {
  const NgramWeights& w = weights_;
  const RowKernels& kernels = row_kernels();
  const size_t all = static_cast<size_t>(width());
  float* const window = memory_.conv + work.step.state_slots[row] * memory_.conv_slot + at;
  const Convolution convolution{w.conv + at, all, w.kernel, w.dilation, channels, window, all};
  auto run = [&](int from, int to) {
    const size_t place = static_cast<size_t>(from - work.first) * all + at;
    float* mixed = work.normed + place;
    const float* value = work.keys + place;
    float* x = work.step.x + static_cast<size_t>(from) * all + at;
    kernels.convolve(convolution, mixed, all, to - from, work.own);
    for (int t = from; t < to; ++t, mixed += all, value += all, x += all) {
      kernels.sigmoid_mul(mixed, mixed, channels);
      kernels.add(mixed, value, channels);
      kernels.add(x, mixed, channels);
    }
  };
  auto copy = [&](int slot) {
    float* into = memory_.conv + slot * memory_.conv_slot + at;
    for (int i = 0; i < window_of(convolution); ++i)
      std::copy_n(window + i * all, channels, into + i * all);
  };
  each_part(work.step, row, work.first, work.first + work.tokens, run, copy);
}

}  // namespace strata
