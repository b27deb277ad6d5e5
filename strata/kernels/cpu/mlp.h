// The gated feed-forward layer: down(silu(gate(h)) * up(h)).
//
// Tokens are taken in blocks, so its scratch does not grow with the step.
#pragma once
#include "linear.h"
#include "port.h"
#include "program.h"

namespace strata {

struct MlpWeights {
  Port port;
  Linear gate, up, down;
};

class Mlp : public Op {
 public:
  explicit Mlp(const MlpWeights& weights) : weights_(weights) {}
  int width() const override { return weights_.port.width(); }
  size_t scratch(const Step& step, int threads) const override;
  void run(Member& member, const Step& step, std::byte* scratch) const override;

 private:
  struct Work;
  void block(Member& member, const Step& step, int first, const Work& work) const;
  MlpWeights weights_;
};

}  // namespace strata
