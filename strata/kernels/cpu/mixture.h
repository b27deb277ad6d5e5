// A block of tokens on its way through a mixture of experts:
// sum of weight_k expert_k(h) + sigmoid(gate h) shared(h).
//
// A block is routed; its experts are fed with their tokens, all at once or in waves; their
// outputs are combined, per token in the order of the probabilities, the shared one last. So
// the sum does not depend on the waves. Knows no memory that experts live in.
#pragma once
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "experts.h"
#include "port.h"
#include "routes.h"

namespace strata {

struct SharedExpert {
  ExpertForm form;
  uintptr_t place;
};

struct MixtureWeights {
  Port port;
  Linear router;  // [experts, hidden]
  int top_k;
  bool normalise;
  ExpertForm form;
  std::optional<SharedExpert> shared;   // runs for every token
  std::optional<Linear> shared_gate;    // [1, hidden]
  std::optional<Linear> ahead;          // the next mixture's router: makes a guess, no output
};

// Experts that can be fed together; the shared one joins the first wave of a block.
struct Wave {
  std::vector<Batch> batches;
  Cut cut;
  std::optional<Cut> shared;
};

// One thread's view. In one scratch, all views of a block share what lies in it but for the
// thread's own part; a view in a later parallel region finds it as it was left.
class MixtureBlock {
 public:
  MixtureBlock(const MixtureWeights& weights, const Step& step, Carver& carver, int first,
               int tokens, int id, int threads);

  // Chooses every token's experts; whoever finds that all are chosen calls `routed`.
  void route(Member& member, const std::function<void()>& routed);
  // All the experts that were chosen, and the shared one. places: [experts] their addresses.
  void feed(Member& member, const int64_t* places);
  void feed(Member& member, const Wave& wave);
  void combine(Member& member) const;

  // A wave of these units of the routes, with the experts' addresses. By one thread, between
  // regions.
  Wave wave(const std::vector<std::pair<int, uintptr_t>>& experts, bool first, int threads) const;

  const Routes& routes() const { return routes_; }
  const int32_t* guess() const { return guess_; }  // [tokens, top_k], with `ahead`

 private:
  template <class Find>
  void feed(Member& member, const Cut& cut, int count, const std::optional<Cut>& shared,
            Find find);
  void enter(int row);
  void ready() const;
  void choose(int token) const;
  Batch batch(int unit, uintptr_t expert) const;

  const MixtureWeights& weights_;
  const Step& step_;
  int first_, tokens_, experts_;
  Routes routes_;
  Group routed_;
  std::optional<Group> shared_;
  float* logits_;               // [tokens, experts]
  float* ahead_logits_;         // [tokens, experts of the next mixture]
  int32_t* guess_;              // [tokens, top_k]
  float* shared_logits_;        // [tokens]
  int32_t* every_token_;        // [tokens] 0, 1, 2, ...
  std::atomic<int>* unrouted_;  // parts of the tokens
  // What depends on the number of threads comes last.
  Activations in_;
  Cut cut_;
  std::optional<Cut> shared_cut_;
  float* own_;             // the thread's: a row of h, or its part of a sum
  bool prepared_ = false;  // the thread's own activations
};

}  // namespace strata
