// The ends of a model: token embeddings, and the logits of the sampled tokens.
#pragma once
#include "linear.h"
#include "port.h"
#include "program.h"

namespace strata {

// Each stream of x[t] = row tokens[t] of the table, as it lies in the file.
class Embed : public Op {
 public:
  Embed(int format, const std::byte* table, int rows, int hidden, int streams)
      : format_(format), table_(table), rows_(rows), hidden_(hidden), streams_(streams) {}
  int width() const override { return hidden_ * streams_; }
  // Throws std::out_of_range for a token that is not in the table.
  void prepare(const Step& step) const override;
  size_t scratch(const Step&, int) const override { return 0; }
  void run(Member& member, const Step& step, std::byte* scratch) const override;

 private:
  int format_;
  const std::byte* table_;
  int rows_, hidden_, streams_;
};

struct HeadWeights {
  Port port;
  Linear weight;
};

// logits[i] = weight * h of token sample[i]
class Head : public Op {
 public:
  explicit Head(const HeadWeights& weights) : weights_(weights) {}
  int width() const override { return weights_.port.width(); }
  size_t scratch(const Step& step, int threads) const override;
  void run(Member& member, const Step& step, std::byte* scratch) const override;

 private:
  HeadWeights weights_;
};

}  // namespace strata
