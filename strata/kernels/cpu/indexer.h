// The block indexer of sparse attention: which tokens a query may see.
//
// Every block of `ratio` tokens has a key in the pages, made of its tokens' raw keys once its
// last one is written; a query takes the `budget` tokens of the blocks with the highest scores,
// the earlier block among equals, and the tokens behind the last whole block. While that is
// every token, nothing is chosen (tiles.h). Knows nothing of the attention that obeys.
#pragma once
#include "activations.h"
#include "linear.h"
#include "program.h"
#include "rope.h"
#include "tiles.h"

namespace strata {

struct IndexerWeights {
  Linear q, k;          // [heads * dim, hidden], [dim, hidden]
  const float* q_norm;  // [dim]
  const float* k_norm;
  float eps;
  int heads, dim;
  Sight sight;
};

struct IndexMemory {
  uint16_t* raw;      // halves [block, dim] of page 0
  float* keys;        // [block / ratio, dim]
  size_t raw_page;    // halves from page to page
  size_t keys_page;   // floats
};

class Indexer {
 public:
  // What a block of tokens needs, as one thread sees it.
  struct Work {
    Work(const Indexer& op, const Step& step, Carver& carver, int first, int tokens, int id,
         int threads);
    const Step& step;
    int first, tokens;
    int most;           // blocks that any token of the step sees
    int group;          // tokens whose scores are held together
    float* projected;   // [tokens, stride()] queries, then the raw key
    float* scores;      // [group, most]
    int32_t* chosen;    // [tokens, budget / ratio]
    float* own;         // the thread's: room for two keys
  };

  Indexer(const IndexerWeights& weights, const IndexMemory& memory, int block)
      : weights_(weights), memory_(memory), block_(block) {}
  const IndexerWeights& weights() const { return weights_; }
  int stride() const { return (weights_.heads + 1) * weights_.dim; }

  // From the projections of the block's tokens: their keys into the pages, then their choices.
  void run(Member& member, const Work& work, const Rope& rope) const;
  // The blocks that a token of the step chose, ascending.
  const int32_t* chosen(const Work& work, int token) const {
    return work.chosen + static_cast<size_t>(token - work.first) * weights_.sight.blocks();
  }

 private:
  void write(const Work& work, int row) const;
  void finish(const Work& work, int row, const Rope& rope) const;
  void score(const Work& work, int sequence, int row, int group, int chunk) const;
  void choose(const Work& work, int row, int group) const;

  IndexerWeights weights_;
  IndexMemory memory_;
  int block_;  // tokens in a page
};

}  // namespace strata
