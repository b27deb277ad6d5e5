// A mixture whose experts are all in memory.
//
// Tokens are taken in blocks, so its scratch does not grow with the step. In a block every
// expert is read once, for all tokens that chose it.
#pragma once
#include "mixture.h"

namespace strata {

class Moe : public Op {
 public:
  // places: the address of each expert.
  Moe(const MixtureWeights& weights, std::vector<int64_t> places)
      : weights_(weights), places_(std::move(places)) {}
  int width() const override { return weights_.port.width(); }
  size_t scratch(const Step& step, int threads) const override;
  void run(Member& member, const Step& step, std::byte* scratch) const override;

 private:
  MixtureWeights weights_;
  std::vector<int64_t> places_;
};

}  // namespace strata
