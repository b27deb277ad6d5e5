// The mixture of experts: sum of weight_k expert_k(h) + sigmoid(gate h) shared(h), with
// expert(h) = down(silu(gate(h)) * up(h)).
//
// Tokens are taken in blocks, so its scratch does not grow with the step. In a block every
// expert is read once, for all tokens that chose it.
#pragma once
#include <optional>

#include "linear.h"
#include "port.h"
#include "program.h"

namespace strata {

// One matrix of all experts, packed, each `stride` bytes after the one before.
struct ExpertMatrix {
  int format, n, k;
  const uint8_t* tiles;
  size_t stride;
  Linear of(int expert) const { return {format, n, k, tiles + stride * expert, nullptr}; }
};

struct ExpertMatrices {
  ExpertMatrix gate, up, down;
};

struct MoeWeights {
  Port port;
  Linear router;  // [experts, hidden]
  int top_k;
  bool normalise;
  ExpertMatrices experts;
  std::optional<ExpertMatrices> shared;  // runs for every token
  std::optional<Linear> shared_gate;     // [1, hidden]
};

class Moe : public Op {
 public:
  explicit Moe(const MoeWeights& weights) : weights_(weights) {}
  int width() const override { return weights_.port.width(); }
  size_t scratch(const Step& step, int threads) const override;
  void run(Member& member, const Step& step, std::byte* scratch) const override;

 private:
  struct Work;
  void route(Member& member, Work& work) const;
  void feed(Member& member, Work& work) const;
  void combine(Member& member, const Work& work) const;
  void enter(Work& work, int row) const;
  MoeWeights weights_;
};

}  // namespace strata
