#include "indexer.h"

#include <algorithm>

#include "rows.h"

namespace strata {

namespace {

constexpr int kChunk = 256;                 // blocks that are scored together: they fit the cache
constexpr int kAhead = 3;                   // pages whose keys are on their way meanwhile
constexpr size_t kScores = size_t{1} << 22;  // floats of scores that are held at a time

// The sequence of a token of the step.
int sequence_of(const Step& step, int token) {
  const int32_t* end = step.row_starts + step.rows + 1;
  return static_cast<int>(std::upper_bound(step.row_starts, end, token) - step.row_starts) - 1;
}

}  // namespace

Indexer::Work::Work(const Indexer& op, const Step& step, Carver& carver, int first, int tokens,
                    int id, int threads)
    : step(step),
      first(first),
      tokens(tokens),
      most((step.last + 1) / op.weights_.sight.ratio),
      group(std::clamp<int>(static_cast<int>(kScores / std::max(1, most)), 1, tokens)) {
  const bool any = op.weights_.sight.sparse(step.last);
  const size_t floats = any ? (static_cast<size_t>(most) + 15) / 16 * 16 : 0;
  projected = carver.take<float>(static_cast<size_t>(tokens) * op.stride());
  scores = carver.take<float>(floats * group);
  chosen = carver.take<int32_t>(any ? static_cast<size_t>(tokens) * op.weights_.sight.blocks() : 0);
  const size_t keys = (2 * static_cast<size_t>(op.weights_.dim) + 15) / 16 * 16;
  float* all = carver.take<float>(keys * threads);
  own = all ? all + keys * id : nullptr;
}

void Indexer::run(Member& member, const Work& work, const Rope& rope) const {
  constexpr int kRows = 4;
  auto by_rows = [&](auto each) {
    member.share((work.tokens + kRows - 1) / kRows, [&](int part) {
      for (int r = part * kRows; r < work.tokens && r < (part + 1) * kRows; ++r) each(r);
    });
  };
  by_rows([&](int row) { write(work, row); });
  by_rows([&](int row) { finish(work, row, rope); });
  const int* positions = work.step.positions + work.first;
  auto sparse = [&](int row) { return weights_.sight.sparse(positions[row]); };
  for (int from = 0; from < work.tokens; from += work.group) {
    const int rows = std::min(work.group, work.tokens - from);
    bool any = false;
    for (int r = from; r < from + rows; ++r) any = any || sparse(r);
    if (!any) continue;
    const int chunks = (work.most + kChunk - 1) / kChunk;
    member.share(chunks * rows, [&](int task) {  // the rows of a chunk one after the other
      const int row = from + task % rows;
      if (sparse(row))
        score(work, sequence_of(work.step, work.first + row), row, from, task / rows);
    });
    member.share(rows, [&](int task) {
      if (sparse(from + task)) choose(work, from + task, from);
    });
  }
}

void Indexer::write(const Work& work, int row) const {
  const int slot = work.step.write_slots[work.first + row], dim = weights_.dim;
  if (slot < 0) return;
  const float* key = work.projected + static_cast<size_t>(row) * stride() + weights_.heads * dim;
  uint16_t* into = memory_.raw + static_cast<size_t>(slot / block_) * memory_.raw_page +
                   static_cast<size_t>(slot % block_) * dim;
  row_kernels().narrow(KvType::f16, key, dim, reinterpret_cast<uint8_t*>(into), 1, nullptr, 0);
}

// Norm and rotation of a token's queries; the key of the block that it completes.
void Indexer::finish(const Work& work, int row, const Rope& rope) const {
  const RowKernels& kernels = row_kernels();
  const int dim = weights_.dim, ratio = weights_.sight.ratio;
  const int position = work.step.positions[work.first + row];
  for (int h = 0; h < weights_.heads; ++h) {
    float* q = work.projected + static_cast<size_t>(row) * stride() + h * dim;
    kernels.rms_norm(q, weights_.q_norm, weights_.eps, dim, q);
    kernels.rotate(q, rope.cosines(position), rope.sines(position), rope.pairs());
  }
  const int slot = work.step.write_slots[work.first + row];
  if (slot < 0 || slot % ratio != ratio - 1) return;
  const size_t page = static_cast<size_t>(slot / block_);
  const int first = slot % block_ + 1 - ratio, start = position + 1 - ratio;
  const uint16_t* raw = memory_.raw + page * memory_.raw_page + static_cast<size_t>(first) * dim;
  float *mean = work.own, *one = work.own + dim;
  dequantise_row(F16, raw, dim, mean);
  for (int i = 1; i < ratio; ++i) {
    dequantise_row(F16, raw + static_cast<size_t>(i) * dim, dim, one);
    kernels.add(mean, one, dim);
  }
  kernels.multiply(mean, 1.0f / static_cast<float>(ratio), dim);
  kernels.rms_norm(mean, weights_.k_norm, weights_.eps, dim, mean);
  kernels.rotate(mean, rope.cosines(start), rope.sines(start), rope.pairs());
  std::copy(mean, mean + dim,
            memory_.keys + page * memory_.keys_page + static_cast<size_t>(first / ratio) * dim);
}

// Scores of one chunk of the whole blocks that a token sees.
void Indexer::score(const Work& work, int sequence, int row, int group, int chunk) const {
  const int each = block_ / weights_.sight.ratio;  // blocks in a page
  const int whole = (work.step.positions[work.first + row] + 1) / weights_.sight.ratio;
  const int end = std::min(whole, (chunk + 1) * kChunk);
  const int32_t* pages = work.step.page_table + static_cast<size_t>(sequence) * work.step.blocks;
  const float* q = work.projected + static_cast<size_t>(row) * stride();
  float* scores = work.scores + static_cast<size_t>(row - group) * ((work.most + 15) / 16 * 16);
  for (int b = chunk * kChunk; b < end;) {
    const int count = std::min(end - b, each - b % each);
    const float* keys = memory_.keys + static_cast<size_t>(pages[b / each]) * memory_.keys_page +
                        static_cast<size_t>(b % each) * weights_.dim;
    if (b + kAhead * each < end) {  // those of a later page, which may lie anywhere
      const size_t page = static_cast<size_t>(pages[b / each + kAhead]);
      const float* next = memory_.keys + page * memory_.keys_page;
      for (int i = 0; i < each * weights_.dim; i += 16) __builtin_prefetch(next + i);
    }
    row_kernels().score_blocks(keys, count, q, weights_.heads, weights_.dim, scores + b);
    b += count;
  }
}

void Indexer::choose(const Work& work, int row, int group) const {
  const int whole = (work.step.positions[work.first + row] + 1) / weights_.sight.ratio;
  const int wanted = weights_.sight.blocks();
  row_kernels().largest(
      work.scores + static_cast<size_t>(row - group) * ((work.most + 15) / 16 * 16), whole, wanted,
      work.chosen + static_cast<size_t>(row) * wanted);
}

}  // namespace strata
