#include "attention.h"

#include <algorithm>
#include <atomic>

#include "activations.h"
#include "gathered.h"
#include "rows.h"
#include "slices.h"

namespace strata {

namespace {

constexpr int kTokens = 256;     // of a block
constexpr int kRows = 32;        // whose part of a sum a thread holds at a time
constexpr int kQueries = 48;     // of a tile: enough to pay for widening its keys
constexpr float kLog2e = 1.44269504f;

size_t line(size_t floats) { return (floats + 15) / 16 * 16; }

}  // namespace

// What a block of tokens needs, as one thread sees it.
struct Attention::Work {
  Work(const Attention& op, const Step& step, Carver& carver, int first, int id, int threads)
      : step(step),
        first(first),
        tokens(std::min(kTokens, step.count - first)),
        tiling(step, op.sight_, first, tokens, op.tile_tokens_, op.weights_.kv_heads, threads),
        in(inputs(op, carver, tokens, id, threads)),
        mixed_in(carver, tokens, id, threads, {&op.weights_.o}) {
    const AttentionWeights& w = op.weights_;
    in_tiles = slice_tiles(w.q, tiles_of(w.q) + tiles_of(w.k) + tiles_of(w.v), threads);
    out_tiles = slice_tiles(w.o, tiles_of(w.o), threads);
    stride = w.q.n + w.k.n + w.v.n;
    projected = carver.take<float>(static_cast<size_t>(tokens) * stride);
    mixed = carver.take<float>(static_cast<size_t>(tokens) * w.o.k);
    pending = carver.take<std::atomic<int>>(tiling.counters());
    take_partials(carver, w.head_dim, op.group_);
    take_own(carver, w, op.group_ * op.tile_tokens_, id, threads);
    if (!op.indexer_) return;
    index.emplace(*op.indexer_, step, carver, first, tokens, id, threads);
    gathered.emplace(carver, op.sight_, op.form_, id, threads);
  }

  static Activations inputs(const Attention& op, Carver& carver, int tokens, int id, int threads) {
    const AttentionWeights& w = op.weights_;
    const IndexerWeights* index = op.indexer_ ? &op.indexer_->weights() : nullptr;
    return {carver, tokens, id, threads,
            {&w.q, &w.k, &w.v, index ? &index->q : &w.q, index ? &index->k : &w.k}};
  }

  void take_partials(Carver& carver, int head_dim, int group) {
    size_t rows = static_cast<size_t>(tiling.partials()) * group;
    partial = {carver.take<float>(rows * sums_stride(head_dim)), carver.take<float>(rows),
               carver.take<float>(rows)};
  }

  void take_own(Carver& carver, const AttentionWeights& w, int rows, int id, int threads) {
    size_t sums = line(static_cast<size_t>(rows) * sums_stride(w.head_dim));
    const int columns = std::max(in_tiles, out_tiles) * tile_rows();
    size_t single = line(std::max<size_t>({static_cast<size_t>(columns) * kRows,
                                           static_cast<size_t>(w.o.n),
                                           static_cast<size_t>(w.head_dim)}));
    size_t queries_floats = line(static_cast<size_t>(rows) * w.head_dim);
    size_t row_floats = line(rows);
    size_t attend_floats = line(attend_scratch(rows, w.head_dim));
    size_t each = single + queries_floats + 2 * sums + 5 * row_floats + attend_floats;
    float* all = carver.take<float>(each * threads);
    if (!all) return;
    float* next = all + each * id;
    auto take = [&](size_t floats) {
      float* piece = next;
      next += floats;
      return piece;
    };
    own = take(single);
    queries = take(queries_floats);
    running = {take(sums), take(row_floats), take(row_floats)};
    part = {take(sums), take(row_floats), take(row_floats)};
    seen = reinterpret_cast<int*>(take(row_floats));
    scratch = take(attend_floats);
  }

  const Step& step;
  int first, tokens;
  Tiling tiling;
  Activations in, mixed_in;
  int in_tiles, out_tiles;     // of a slice
  int stride;                  // of projected: queries, keys, values of a token
  float* projected;            // [tokens, stride]
  float* mixed;                // [tokens, heads * head_dim]
  std::atomic<int>* pending;   // segments left of each (tile, key head)
  Sums partial;                // of every segment, where they are split
  std::optional<Indexer::Work> index;

  // The thread's own.
  float* own = nullptr;        // one row, or a part of a sum
  float* queries = nullptr;
  int* seen = nullptr;
  Sums running{}, part{};
  float* scratch = nullptr;
  std::optional<Gathered> gathered;
};

Attention::Attention(const AttentionWeights& weights, const PagedMemory& memory,
                     const std::optional<Indexer>& indexer)
    : weights_(weights),
      memory_(memory),
      form_{memory.type, weights.head_dim},
      indexer_(indexer),
      sight_(indexer ? indexer->weights().sight : Sight{}),
      group_(weights.heads / weights.kv_heads),
      tile_tokens_(std::max(1, kQueries / group_)),
      together_(indexer ? sight_.ratio : memory.block) {}

void Attention::prepare(const Step& step) const { weights_.rope->reach(step.last); }

size_t Attention::scratch(const Step& step, int threads) const {
  size_t most = 0;
  for (int first = 0; first < step.count; first += kTokens) {
    Carver carver(nullptr);
    Work(*this, step, carver, first, 0, threads);
    most = std::max(most, carver.used());
  }
  return most;
}

void Attention::run(Member& member, const Step& step, std::byte* scratch) const {
  for (int first = 0; first < step.count; first += kTokens) {
    Carver carver(scratch);
    block(member, Work(*this, step, carver, first, member.id(), member.size()));
  }
}

void Attention::block(Member& member, const Work& work) const {
  const int heads = weights_.kv_heads;
  project(member, work);
  if (weights_.whole) member.share(work.tokens, [&](int token) { norm_whole(work, token); });
  if (indexer_) indexer_->run(member, *work.index, *weights_.rope);
  if (!work.tiling.single())
    member.share(work.tokens * heads, [&](int task) {
      write(work, work.first + task / heads, task % heads);
    });
  member.share(work.tiling.items(), [&](int index) { attend(work, work.tiling.item(index)); });

  const Linear& o = weights_.o;
  auto requantise = [&](int row) {
    work.mixed_in.set(row, work.mixed + static_cast<size_t>(row) * o.k);
  };
  share_after_rows(member, work.tokens, requantise, slice_count(o, work.out_tiles), [&](int task) {
    Slice slice = slice_at(o, work.out_tiles, task);
    for (int row = 0; row < work.tokens; row += kRows)
      weights_.port.add(work.step, work.first + row, work.mixed_in, slice, row,
                        std::min(kRows, work.tokens - row), work.own);
  });
}

// Norm, then queries, keys and values of the block's tokens.
void Attention::project(Member& member, const Work& work) const {
  const AttentionWeights& w = weights_;
  auto norm = [&](int row) {
    w.port.enter(work.step, work.first + row, work.own);
    work.in.set(row, work.own);
  };
  struct Part { const Linear* matrix; float* y; int stride, slices; };
  Part parts[] = {{&w.q, work.projected, work.stride, 0},
                  {&w.k, work.projected + w.q.n, work.stride, 0},
                  {&w.v, work.projected + w.q.n + w.k.n, work.stride, 0}, {}, {}};
  if (indexer_) {
    const IndexerWeights& index = indexer_->weights();
    parts[3] = {&index.q, work.index->projected, indexer_->stride(), 0};
    parts[4] = {&index.k, work.index->projected + index.q.n, indexer_->stride(), 0};
  }
  int total = 0;
  for (Part& part : parts)
    if (part.matrix) total += part.slices = slice_count(*part.matrix, work.in_tiles);
  share_after_rows(member, work.tokens, norm, total, [&](int task) {
    if (task == 0)
      for (int i = 0; i < work.tiling.counters(); ++i)
        work.pending[i].store(work.tiling.segments_of(i), std::memory_order_relaxed);
    const Part* part = parts;
    while (task >= part->slices) task -= part++->slices;
    Slice slice = slice_at(*part->matrix, work.in_tiles, task);
    work.in.multiply(slice, 0, work.tokens, part->y + slice.first, part->stride);
  });
}

// Queries and keys of a token, normed in place where the norm is of all heads together.
void Attention::norm_whole(const Work& work, int token) const {
  const AttentionWeights& w = weights_;
  float* q = work.projected + static_cast<size_t>(token) * work.stride;
  float* k = q + w.q.n;
  if (w.q_norm) row_kernels().rms_norm(q, w.q_norm, w.eps, w.q.n, q);
  if (w.k_norm) row_kernels().rms_norm(k, w.k_norm, w.eps, w.k.n, k);
}

// Norm and rotation of one head's query or key, in place.
void Attention::turn(float* vector, const float* norm, int position) const {
  const RowKernels& kernels = row_kernels();
  const Rope& rope = *weights_.rope;
  if (norm) kernels.rms_norm(vector, norm, weights_.eps, weights_.head_dim, vector);
  kernels.rotate(vector, rope.cosines(position), rope.sines(position), rope.pairs());
}

// Puts the key and value of one head of a token into its page.
void Attention::write(const Work& work, int token, int head) const {
  const int slot = work.step.write_slots[token];
  if (slot < 0) return;
  const int dim = weights_.head_dim, block = memory_.block;
  const size_t page = static_cast<size_t>(slot / block);
  const int place = slot % block % together_, unit = slot % block - place;
  const size_t offset = (static_cast<size_t>(head) * block + unit) * form_.vector();
  const float* k = work.projected + static_cast<size_t>(token - work.first) * work.stride +
                   weights_.q.n + head * dim;
  std::copy(k, k + dim, work.own);
  turn(work.own, weights_.whole ? nullptr : weights_.k_norm, work.step.positions[token]);
  form_.put_key(work.own, memory_.k + page * memory_.k_page + offset, together_, place);
  form_.put_value(k + weights_.k.n, memory_.v + page * memory_.v_page + offset, together_, place);
}

void Attention::load_queries(const Work& work, const Item& item) const {
  const int dim = weights_.head_dim, each = weights_.gated ? 2 * dim : dim;
  for (int t = 0; t < item.tile.count; ++t) {
    const int token = item.tile.first + t;
    const int position = work.step.positions[token];
    const float* q = work.projected + static_cast<size_t>(token - work.first) * work.stride +
                     static_cast<size_t>(item.head) * group_ * each;
    for (int g = 0; g < group_; ++g) {
      const int row = t * group_ + g;
      float* into = work.queries + static_cast<size_t>(row) * dim;
      std::copy(q + g * each, q + g * each + dim, into);
      turn(into, weights_.whole ? nullptr : weights_.q_norm, position);
      row_kernels().multiply(into, weights_.scale * kLog2e, dim);
      work.seen[row] = sight_.keys(position);
    }
  }
}

void Attention::attend(const Work& work, const Item& item) const {
  const int dim = weights_.head_dim, segments = item.tile.segments;
  const int first = item.segment < 0 ? 0 : item.segment;
  const int end = item.segment < 0 ? segments : first + 1;
  if (work.tiling.single() && end == segments) write(work, item.tile.first, item.head);
  load_queries(work, item);
  const Queries queries{work.queries, work.seen, item.tile.count * group_};
  const RowKernels& kernels = row_kernels();
  Sums sums = item.segment < 0 ? work.running : partial_sums(work, item, item.segment);
  attend_to(work, item, queries, first, sums);
  for (int segment = first + 1; segment < end; ++segment) {
    attend_to(work, item, queries, segment, work.part);
    kernels.merge(sums, work.part, queries, segment, dim);
  }
  if (item.segment >= 0) {
    // The last one to finish merges, in the segments' order.
    if (work.pending[item.counter].fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    sums = partial_sums(work, item, 0);
    for (int segment = 1; segment < segments; ++segment)
      kernels.merge(sums, partial_sums(work, item, segment), queries, segment, dim);
  }
  float* y = work.mixed + static_cast<size_t>(item.tile.first - work.first) * weights_.o.k +
             static_cast<size_t>(item.head) * group_ * dim;
  kernels.finish(sums, queries.rows, group_, dim, y, weights_.o.k);
  if (weights_.gated) gate(work, item, y);
}

// One segment of the keys that an item's queries see.
void Attention::attend_to(const Work& work, const Item& item, const Queries& queries, int segment,
                          Sums into) const {
  const int last = queries.seen[queries.rows - 1];
  const size_t head = static_cast<size_t>(item.head) * memory_.block * form_.vector();
  const Keys keys{memory_.k + head, memory_.v + head, memory_.k_page, memory_.v_page,
                  work.step.page_table + static_cast<size_t>(item.tile.row) * work.step.blocks,
                  memory_.block, together_, form_};
  if (!indexer_)
    return row_kernels().attend(keys, queries, segment, last, work.scratch, into);
  const int token = item.tile.first + item.tile.count - 1;
  const int32_t* chosen = item.tile.sparse ? indexer_->chosen(*work.index, token) : nullptr;
  work.gathered->load(keys, chosen, work.step.positions[token], segment);
  row_kernels().attend(work.gathered->keys(), queries, segment, last, work.scratch, into);
}

// Multiplies the outputs of an item's heads by the sigmoids of their gates.
void Attention::gate(const Work& work, const Item& item, float* y) const {
  const int dim = weights_.head_dim;
  for (int t = 0; t < item.tile.count; ++t, y += weights_.o.k) {
    const int row = item.tile.first + t - work.first;
    const float* q = work.projected + static_cast<size_t>(row) * work.stride +
                     static_cast<size_t>(item.head) * group_ * 2 * dim;
    for (int g = 0; g < group_; ++g)
      row_kernels().sigmoid_mul(y + g * dim, q + (2 * g + 1) * dim, dim);
  }
}

Sums Attention::partial_sums(const Work& work, const Item& item, int segment) const {
  size_t row = (static_cast<size_t>(item.partial) + segment * item.tile.count) * group_;
  return {work.partial.out + row * sums_stride(weights_.head_dim), work.partial.top + row,
          work.partial.total + row};
}

}  // namespace strata
