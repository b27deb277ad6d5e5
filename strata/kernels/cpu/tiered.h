// A mixture whose experts come and go: it computes at once when all that it needs are in
// memory, else it stops the step and is fed in waves.
//
// Knows the addresses that it is given, not who moves experts there. A step's tokens are routed
// together, so that each expert is wanted once. Unlike other ops it keeps something between the
// calls of a step: one belongs to one program.
#pragma once
#include <atomic>

#include "mixture.h"

namespace strata {

// Where a layer's experts are: [experts] addresses, 0 for one that is not in memory. Others
// write it, never while a step runs.
struct Places {
  const int64_t* at;
  bool hold(const int32_t* experts, size_t count) const {
    return std::all_of(experts, experts + count, [&](int32_t e) { return at[e] != 0; });
  }
};

// One wave as the source gives it: experts in slots of an arena.
struct Slots {
  uintptr_t arena;
  size_t stride;  // bytes from slot to slot
  const int32_t *experts, *slots;
  int count;
};

class TieredMoe : public Op {
 public:
  // `next`: of the mixture whose router is weights.ahead.
  TieredMoe(const MixtureWeights& weights, Places own, Places next)
      : weights_(weights), own_(own), next_(next) {}
  int width() const override { return weights_.port.width(); }
  void prepare(const Step& step) const override;
  size_t scratch(const Step& step, int threads) const override;
  void run(Member& member, const Step& step, std::byte* scratch) const override;
  bool stopped() const override { return stopped_.load(std::memory_order_relaxed); }
  void finish(Member& member, const Step& step, std::byte* scratch) const override;

  // Where to leave the choice and the guess of a step, [tokens, top_k] each, from now on.
  void keep(int32_t* chosen, int32_t* guess) { chosen_ = chosen, guess_ = guess; }
  // Once stopped: what to feed next, then fed by all members. Raises invalid_argument for
  // experts that nobody chose, or that were fed already.
  Wave wave(const Step& step, std::byte* scratch, const Slots& slots, int threads) const;
  void feed(Member& member, const Step& step, std::byte* scratch, const Wave& wave) const;
  // Whether every expert that was chosen has been fed.
  bool whole() const;

 private:
  MixtureBlock block(const Step& step, std::byte* scratch, int id, int threads) const;
  void decide(const MixtureBlock& block, int tokens) const;

  MixtureWeights weights_;
  Places own_, next_;
  int32_t *chosen_ = nullptr, *guess_ = nullptr;
  // Of the step; written by one thread, in a phase or between regions.
  mutable std::atomic<bool> stopped_{false};
  mutable std::vector<bool> fed_;  // of the experts that were chosen
  mutable bool begun_ = false;     // with the waves
};

}  // namespace strata
