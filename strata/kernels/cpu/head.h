// The ends of a model: token embeddings, and the logits of the sampled tokens.
#pragma once
#include "linear.h"
#include "program.h"

namespace strata {

// x[t] = row tokens[t] of the table, as it lies in the file.
class Embed : public Op {
 public:
  Embed(int format, const std::byte* table, int rows, int width)
      : format_(format), table_(table), rows_(rows), width_(width) {}
  int width() const override { return width_; }
  // Throws std::out_of_range for a token that is not in the table.
  void prepare(const Step& step) const override;
  size_t scratch(const Step&, int) const override { return 0; }
  void run(Member& member, const Step& step, std::byte* scratch) const override;

 private:
  int format_;
  const std::byte* table_;
  int rows_, width_;
};

struct HeadWeights {
  const float* norm;
  float eps;
  Linear weight;
};

// logits[i] = weight * norm(x[sample[i]])
class Head : public Op {
 public:
  explicit Head(const HeadWeights& weights) : weights_(weights) {}
  int width() const override { return weights_.weight.k; }
  size_t scratch(const Step& step, int threads) const override;
  void run(Member& member, const Step& step, std::byte* scratch) const override;

 private:
  HeadWeights weights_;
};

}  // namespace strata
