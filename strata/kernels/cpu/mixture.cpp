#include "mixture.h"

#include <cmath>

#include "slices.h"

namespace strata {

namespace {

constexpr int kColumns = 512;  // of a token that are combined together
constexpr int kPart = 8;       // tokens whose experts are chosen together

Activations inputs(const MixtureWeights& w, Carver& carver, int tokens, int id, int threads) {
  const ExpertForm& shared = w.shared ? w.shared->form : w.form;
  const Linear& gate = w.shared_gate ? *w.shared_gate : w.router;
  const Linear& ahead = w.ahead ? *w.ahead : w.router;
  return {carver, tokens, id, threads, w.router.k,
          {w.router.format, ahead.format, gate.format, w.form.gate.format, w.form.up.format,
           shared.gate.format, shared.up.format}};
}

// y += weight * x
void add_weighted(float* y, float weight, const float* x, int count) {
  for (int i = 0; i < count; ++i) y[i] += weight * x[i];
}

// A router's product as tasks of a phase.
struct Routing {
  Routing(const Linear& router, int threads)
      : router(router),
        tiles(slice_tiles(router, tiles_of(router), threads)),
        slices(slice_count(router, tiles)) {}
  void run(int task, const Activations& in, int tokens, float* logits) const {
    const Slice slice = slice_at(router, tiles, task);
    in.multiply(slice, 0, tokens, logits + slice.first, router.n);
  }
  const Linear& router;
  int tiles, slices;
};

}  // namespace

MixtureBlock::MixtureBlock(const MixtureWeights& w, const Step& step, Carver& carver, int first,
                           int tokens, int id, int threads)
    : weights_(w),
      step_(step),
      first_(first),
      tokens_(tokens),
      experts_(w.router.n),
      routes_(carver, tokens, experts_, w.top_k, w.normalise),
      routed_(w.form, carver, routes_.slots(), std::min(experts_, routes_.slots())),
      shared_(w.shared ? std::make_optional<Group>(w.shared->form, carver, tokens, 1)
                       : std::nullopt),
      logits_(carver.take<float>(static_cast<size_t>(tokens) * experts_)),
      ahead_logits_(carver.take<float>(static_cast<size_t>(tokens) * (w.ahead ? w.ahead->n : 0))),
      guess_(carver.take<int32_t>(w.ahead ? routes_.slots() : 0)),
      shared_logits_(carver.take<float>(tokens)),
      every_token_(carver.take<int32_t>(tokens)),
      unrouted_(carver.take<std::atomic<int>>(1)),
      in_(inputs(w, carver, tokens, id, threads)),
      cut_(w.form, routed_.units(), threads) {
  if (w.shared) shared_cut_.emplace(w.shared->form, 1, threads);
  const int columns = std::max(cut_.columns(), shared_cut_ ? shared_cut_->columns() : 0);
  size_t floats = static_cast<size_t>(columns) * std::min(tokens, Group::kRows);
  floats = (std::max<size_t>({floats, kColumns, static_cast<size_t>(w.router.k)}) + 15) / 16 * 16;
  float* all = carver.take<float>(floats * threads);
  own_ = all ? all + floats * id : nullptr;
}

void MixtureBlock::enter(int row) {
  weights_.port.enter(step_, first_ + row, own_);
  in_.set(row, own_);
  prepared_ = true;
}

// What feeding and choosing count.
void MixtureBlock::ready() const {
  for (int t = 0; t < tokens_; ++t) every_token_[t] = t;
  for (int unit = 0; unit < routed_.units(); ++unit) routed_.expect(unit, cut_);
  if (shared_) shared_->expect(0, *shared_cut_);
  unrouted_->store((tokens_ + kPart - 1) / kPart, std::memory_order_relaxed);
}

void MixtureBlock::choose(int token) const {
  const int32_t top_k = weights_.top_k;
  const size_t row = static_cast<size_t>(token);
  routes_.choose(token, logits_ + row * experts_);
  if (!weights_.ahead) return;
  const int next = weights_.ahead->n;
  most_likely(ahead_logits_ + row * next, next, top_k, guess_ + row * top_k);
}

void MixtureBlock::route(Member& member, const std::function<void()>& routed) {
  const Routing own(weights_.router, member.size());
  std::optional<Routing> ahead;
  if (weights_.ahead) ahead.emplace(*weights_.ahead, member.size());
  const int slices = own.slices + (ahead ? ahead->slices : 0);
  auto logits = [&](int task) {
    if (task < own.slices) return own.run(task, in_, tokens_, logits_);
    if (task < slices) return ahead->run(task - own.slices, in_, tokens_, ahead_logits_);
    if (weights_.shared_gate)
      in_.multiply({*weights_.shared_gate, 0}, 0, tokens_, shared_logits_, 1);
    ready();
  };
  share_after_rows(member, tokens_, [&](int row) { enter(row); }, slices + 1, logits);
  member.share((tokens_ + kPart - 1) / kPart, [&](int part) {
    for (int t = part * kPart; t < tokens_ && t < (part + 1) * kPart; ++t) choose(t);
    if (unrouted_->fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    routes_.sort();
    routed();
  });
}

Batch MixtureBlock::batch(int unit, uintptr_t expert) const {
  const int first = routes_.first(unit);
  return {unit, expert, routes_.order() + first, first, routes_.rows(unit)};
}

// Every expert's output for its tokens, the shared one's first. find(i): the i-th batch.
template <class Find>
void MixtureBlock::feed(Member& member, const Cut& cut, int count,
                        const std::optional<Cut>& shared, Find find) {
  auto run = [&](int task, int Cut::*slices, auto pass) {
    const int before = shared ? (*shared).*slices : 0;
    if (task < before) {
      const Batch everyone{0, weights_.shared->place, every_token_, 0, tokens_};
      return pass(*shared_, everyone, *shared, task);
    }
    const Batch batch = find((task - before) / (cut.*slices));
    if (batch.rows) pass(routed_, batch, cut, (task - before) % (cut.*slices));
  };
  auto tasks = [&](int Cut::*slices) {
    return (shared ? (*shared).*slices : 0) + count * (cut.*slices);
  };
  auto prepare = [&] {
    if (!each_prepares(tokens_) || prepared_) return;
    for (int row = 0; row < tokens_; ++row) enter(row);
  };
  auto widen = [&](const Group& group, const Batch& batch, const Cut& by, int slice) {
    group.widen(batch, by, slice, in_, own_);
  };
  auto narrow = [](const Group& group, const Batch& batch, const Cut& by, int slice) {
    group.narrow(batch, by, slice);
  };
  member.share(
      tasks(&Cut::wide_slices), [&](int task) { run(task, &Cut::wide_slices, widen); }, prepare);
  member.share(tasks(&Cut::down_slices), [&](int task) { run(task, &Cut::down_slices, narrow); });
}

// The number of tasks is that of the most experts that the tokens can choose: it must not be
// read from memory (team.h).
void MixtureBlock::feed(Member& member, const int64_t* places) {
  feed(member, cut_, routed_.units(), shared_cut_, [&](int unit) -> Batch {
    if (unit >= routes_.active()) return {};
    return batch(unit, static_cast<uintptr_t>(places[routes_.expert(unit)]));
  });
}

void MixtureBlock::feed(Member& member, const Wave& wave) {
  feed(member, wave.cut, static_cast<int>(wave.batches.size()), wave.shared,
       [&](int i) { return wave.batches[i]; });
}

Wave MixtureBlock::wave(const std::vector<std::pair<int, uintptr_t>>& experts, bool first,
                        int threads) const {
  const int count = static_cast<int>(experts.size());
  Wave wave{{}, Cut(weights_.form, std::max(1, count), threads), {}};
  if (first && shared_) {
    wave.shared.emplace(weights_.shared->form, 1, threads);
    shared_->expect(0, *wave.shared);
  }
  for (const auto& [unit, place] : experts) {
    routed_.expect(unit, wave.cut);
    wave.batches.push_back(batch(unit, place));
  }
  return wave;
}

void MixtureBlock::combine(Member& member) const {
  const int hidden = weights_.port.hidden, pieces = (hidden + kColumns - 1) / kColumns;
  member.share(tokens_ * pieces, [&](int task) {
    const int token = task / pieces, first = task % pieces * kColumns;
    const int columns = std::min(kColumns, hidden - first);
    const int32_t* slots = routes_.slots_of(token);
    const float* weights = routes_.weights_of(token);
    std::fill(own_, own_ + columns, 0.0f);
    for (int k = 0; k < weights_.top_k; ++k)
      add_weighted(own_, weights[k], routed_.out(slots[k]) + first, columns);
    if (shared_) {
      const float logit = shared_logits_[token];
      const float weight = weights_.shared_gate ? 1.0f / (1.0f + std::exp(-logit)) : 1.0f;
      add_weighted(own_, weight, shared_->out(token) + first, columns);
    }
    weights_.port.leave(step_, first_ + token, first, own_, columns);
  });
}

}  // namespace strata
