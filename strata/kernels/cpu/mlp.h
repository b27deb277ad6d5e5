// The gated feed-forward layer: x += down(silu(gate(h)) * up(h)), h = norm(x).
//
// Tokens are taken in blocks, so its scratch does not grow with the step.
#pragma once
#include "linear.h"
#include "program.h"

namespace strata {

struct MlpWeights {
  const float* norm;  // [k of gate]
  float eps;
  Linear gate, up, down;
};

class Mlp : public Op {
 public:
  explicit Mlp(const MlpWeights& weights) : weights_(weights) {}
  int width() const override { return weights_.down.n; }
  size_t scratch(const Step& step, int threads) const override;
  void run(Member& member, const Step& step, std::byte* scratch) const override;

 private:
  struct Work;
  void block(Member& member, float* x, const Work& work) const;
  MlpWeights weights_;
};

}  // namespace strata
