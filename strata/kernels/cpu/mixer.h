// What comes before a sublayer that reads several residual streams (GatedStreams in
// residual.py): gates for each float of the streams, and each stream's share of the output.
//
// Leaves them in step.mixed, [width + streams] of a token, where the sublayer's port finds
// them. Without `inject` nothing is added to the streams and only sampled tokens are read:
// row i is then that of the i-th sampled token.
#pragma once
#include <optional>

#include "linear.h"
#include "port.h"
#include "program.h"

namespace strata {

struct MixerWeights {
  Port port;
  Linear down, up;
  std::optional<Linear> inject;
};

class Mixer : public Op {
 public:
  explicit Mixer(const MixerWeights& weights) : weights_(weights) {}
  int width() const override { return weights_.port.width(); }
  int mixed() const override { return width() + weights_.port.streams; }
  size_t scratch(const Step& step, int threads) const override;
  void run(Member& member, const Step& step, std::byte* scratch) const override;

 private:
  struct Work;
  int rows(const Step& step) const { return weights_.inject ? step.count : step.sampled; }
  void block(Member& member, const Step& step, int first, const Work& work) const;
  void norm(const float* x, float* out) const;
  MixerWeights weights_;
};

}  // namespace strata
