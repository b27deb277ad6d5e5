#include "moe.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>

#include "activations.h"
#include "routes.h"
#include "rows.h"
#include "slices.h"

namespace strata {

namespace {

constexpr int kTokens = 512;   // of a block
constexpr int kRows = 32;      // of an expert, whose part of a sum a thread holds at a time
constexpr int kColumns = 512;  // of a token that are combined together
constexpr size_t kTaskBytes = 1 << 17;  // of weights

// Tiles in a slice of `together` matrices like this one, read by one task.
int tiles_each(const ExpertMatrix& matrix, int together, int units, int threads) {
  const Linear one = matrix.of(0);
  const size_t bytes = tile_bytes(one.format, one.k, tile_rows()) * together;
  const int few = units * tiles_of(one) / (8 * threads);  // so that every thread finds tasks
  return std::max(1, std::min(static_cast<int>(kTaskBytes / bytes), few));
}

// Experts of one shape, and what a block of tokens needs to pass through them.
struct Group {
  // `rows` (token, expert) pairs in all, of at most `units` experts.
  Group(const ExpertMatrices& m, Carver& carver, int rows, int units, int threads)
      : matrices(m),
        units(units),
        wide_tiles(tiles_each(m.gate, 2, units, threads)),
        down_tiles(tiles_each(m.down, 1, units, threads)),
        wide_slices(slice_count(m.gate.of(0), wide_tiles)),
        down_slices(slice_count(m.down.of(0), down_tiles)),
        inner(carver, rows, 0, 1, m.down.k, {m.down.format}),
        gated(carver.take<float>(static_cast<size_t>(rows) * m.gate.n)),
        out(carver.take<float>(static_cast<size_t>(rows) * m.down.n)),
        pending(carver.take<std::atomic<int>>(units)) {}

  void reset() const {
    for (int i = 0; i < units; ++i) pending[i].store(wide_slices, std::memory_order_relaxed);
  }
  int columns() const { return std::max(wide_tiles, down_tiles) * tile_rows(); }

  const ExpertMatrices& matrices;
  int units;
  int wide_tiles, down_tiles;    // of a slice
  int wide_slices, down_slices;  // of an expert
  Activations inner;          // [rows] of gated
  float* gated;               // [rows, gate.n]
  float* out;                 // [rows, down.n]
  std::atomic<int>* pending;  // [units] slices of gate and up that are left
};

// The rows that pass through one expert.
struct Batch {
  int unit, expert;
  const int32_t* tokens;  // [rows]
  int first, rows;        // of the group's buffers
};

// A slice of gate and up; whoever finishes an expert's last one prepares the rows for down.
void widen(const Group& group, const Batch& batch, int slice, const Activations& in, float* own) {
  const RowKernels& kernels = row_kernels();
  const ExpertMatrices& m = group.matrices;
  const Slice gate = slice_at(m.gate.of(batch.expert), group.wide_tiles, slice);
  const Slice up = slice_at(m.up.of(batch.expert), group.wide_tiles, slice);
  const int columns = gate.part.n, inner = m.gate.n;
  float* gated = group.gated + static_cast<size_t>(batch.first) * inner;
  for (int row = 0; row < batch.rows; row += kRows) {
    const int rows = std::min(kRows, batch.rows - row);
    float* y = gated + static_cast<size_t>(row) * inner + gate.first;
    in.gather(gate, batch.tokens + row, rows, y, inner);
    in.gather(up, batch.tokens + row, rows, own, columns);
    for (int r = 0; r < rows; ++r)
      kernels.silu_mul(y + static_cast<size_t>(r) * inner, own + r * columns, columns);
  }
  if (group.pending[batch.unit].fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  for (int row = 0; row < batch.rows; ++row)
    group.inner.set(batch.first + row, gated + static_cast<size_t>(row) * inner);
}

void narrow(const Group& group, const Batch& batch, int slice) {
  const Slice down = slice_at(group.matrices.down.of(batch.expert), group.down_tiles, slice);
  const int hidden = group.matrices.down.n;
  float* y = group.out + static_cast<size_t>(batch.first) * hidden + down.first;
  group.inner.multiply(down, batch.first, batch.rows, y, hidden);
}

// y += weight * x
void add_weighted(float* y, float weight, const float* x, int count) {
  for (int i = 0; i < count; ++i) y[i] += weight * x[i];
}

}  // namespace

struct Moe::Work {
  Work(const MoeWeights& w, const Step& step, Carver& carver, int first, int id, int threads)
      : step(step),
        first(first),
        tokens(std::min(kTokens, step.count - first)),
        experts(w.router.n),
        in(inputs(w, carver, tokens, id, threads)),
        routes(carver, tokens, experts, w.top_k, w.normalise),
        routed(w.experts, carver, routes.slots(), std::min(experts, routes.slots()), threads),
        logits(carver.take<float>(static_cast<size_t>(tokens) * experts)),
        shared_logits(carver.take<float>(tokens)),
        every_token(carver.take<int32_t>(tokens)),
        unrouted(carver.take<std::atomic<int>>(1)),
        router_tiles(slice_tiles(w.router, tiles_of(w.router), threads)) {
    int columns = routed.columns();
    if (w.shared) {
      shared.emplace(*w.shared, carver, tokens, 1, threads);
      columns = std::max(columns, shared->columns());
    }
    size_t floats = static_cast<size_t>(columns) * std::min(tokens, kRows);
    floats = (std::max<size_t>({floats, kColumns, static_cast<size_t>(w.router.k)}) + 15) / 16 * 16;
    float* all = carver.take<float>(floats * threads);
    own = all ? all + floats * id : nullptr;
  }

  static Activations inputs(const MoeWeights& w, Carver& carver, int tokens, int id, int threads) {
    const ExpertMatrices& shared = w.shared ? *w.shared : w.experts;
    const Linear& gate = w.shared_gate ? *w.shared_gate : w.router;
    return {carver, tokens, id, threads, w.router.k,
            {w.router.format, gate.format, w.experts.gate.format, w.experts.up.format,
             shared.gate.format, shared.up.format}};
  }

  const Step& step;
  int first, tokens;
  int experts;
  Activations in;
  Routes routes;
  Group routed;
  std::optional<Group> shared;
  float* logits;               // [tokens, experts]
  float* shared_logits;        // [tokens]
  int32_t* every_token;        // [tokens] 0, 1, 2, ...
  std::atomic<int>* unrouted;  // parts of the tokens
  int router_tiles;            // of a slice
  float* own;                  // the thread's: a row of h, or its part of a sum
  bool prepared = false;       // the thread's own activations
};

size_t Moe::scratch(const Step& step, int threads) const {
  Carver carver(nullptr);
  Work(weights_, step, carver, 0, 0, threads);
  return carver.used();
}

void Moe::run(Member& member, const Step& step, std::byte* scratch) const {
  for (int first = 0; first < step.count; first += kTokens) {
    Carver carver(scratch);
    Work work(weights_, step, carver, first, member.id(), member.size());
    route(member, work);
    feed(member, work);
    combine(member, work);
  }
}

void Moe::enter(Work& work, int row) const {
  weights_.port.enter(work.step, work.first + row, work.own);
  work.in.set(row, work.own);
  work.prepared = true;
}

// Fills the routes; readies what the feeding counts.
void Moe::route(Member& member, Work& work) const {
  constexpr int kPart = 8;  // tokens
  const Linear& router = weights_.router;
  const int parts = (work.tokens + kPart - 1) / kPart;
  const int slices = slice_count(router, work.router_tiles);
  auto logits = [&](int task) {
    if (task < slices) {
      const Slice slice = slice_at(router, work.router_tiles, task);
      work.in.multiply(slice, 0, work.tokens, work.logits + slice.first, work.experts);
      return;
    }
    if (weights_.shared_gate)
      work.in.multiply({*weights_.shared_gate, 0}, 0, work.tokens, work.shared_logits, 1);
    for (int t = 0; t < work.tokens; ++t) work.every_token[t] = t;
    work.routed.reset();
    if (work.shared) work.shared->reset();
    work.unrouted->store(parts, std::memory_order_relaxed);
  };
  share_after_rows(member, work.tokens, [&](int row) { enter(work, row); }, slices + 1, logits);
  member.share(parts, [&](int part) {
    for (int t = part * kPart; t < work.tokens && t < (part + 1) * kPart; ++t)
      work.routes.choose(t, work.logits + static_cast<size_t>(t) * work.experts);
    if (work.unrouted->fetch_sub(1, std::memory_order_acq_rel) == 1) work.routes.sort();
  });
}

// Every expert's output for its tokens, the shared one's first. The number of tasks is that
// of the most experts that the tokens can choose: it must not be read from memory (team.h).
void Moe::feed(Member& member, Work& work) const {
  auto each = [&](int task, int Group::*slices, auto run) {
    const int shared = work.shared ? (*work.shared).*slices : 0;
    if (task < shared)
      return run(*work.shared, Batch{0, 0, work.every_token, 0, work.tokens}, task);
    const int unit = (task - shared) / (work.routed.*slices);
    if (unit >= work.routes.active()) return;
    const int first = work.routes.first(unit);
    run(work.routed,
        Batch{unit, work.routes.expert(unit), work.routes.order() + first, first,
              work.routes.rows(unit)},
        (task - shared) % (work.routed.*slices));
  };
  auto count = [&](int Group::*slices) {
    return (work.shared ? (*work.shared).*slices : 0) + work.routed.units * (work.routed.*slices);
  };
  auto wide = [&](const Group& group, const Batch& batch, int slice) {
    widen(group, batch, slice, work.in, work.own);
  };
  auto prepare = [&] {
    if (!each_prepares(work.tokens) || work.prepared) return;
    for (int row = 0; row < work.tokens; ++row) enter(work, row);
  };
  member.share(
      count(&Group::wide_slices), [&](int task) { each(task, &Group::wide_slices, wide); },
      prepare);
  member.share(count(&Group::down_slices),
               [&](int task) { each(task, &Group::down_slices, narrow); });
}

// The outputs of a token's experts in the order of their probabilities, the shared one last.
void Moe::combine(Member& member, const Work& work) const {
  const int hidden = weights_.port.hidden, pieces = (hidden + kColumns - 1) / kColumns;
  member.share(work.tokens * pieces, [&](int task) {
    const int token = task / pieces, first = task % pieces * kColumns;
    const int columns = std::min(kColumns, hidden - first);
    const int32_t* slots = work.routes.slots_of(token);
    const float* weights = work.routes.weights_of(token);
    std::fill(work.own, work.own + columns, 0.0f);
    for (int k = 0; k < weights_.top_k; ++k)
      add_weighted(work.own, weights[k],
                   work.routed.out + static_cast<size_t>(slots[k]) * hidden + first, columns);
    if (work.shared) {
      const float logit = work.shared_logits[token];
      const float weight = weights_.shared_gate ? 1.0f / (1.0f + std::exp(-logit)) : 1.0f;
      add_weighted(work.own, weight,
                   work.shared->out + static_cast<size_t>(token) * hidden + first, columns);
    }
    weights_.port.leave(work.step, work.first + token, first, work.own, columns);
  });
}

}  // namespace strata
