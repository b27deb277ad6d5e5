// The attention layer over paged keys and values: o(attend(q, k, v)).
//
// A step's tokens are taken in blocks. In a block all keys are written before any
// query reads; a query then sees the keys of its sequence up to its own position,
// which are the same bytes whether this step wrote them or an earlier one.
// A query that an indexer limits attends to its chosen keys as if they were all that its
// sequence holds: gathered, in their order, and cut into segments from the first of them.
// Invariant: nothing at or beyond the largest position of a tile of queries is read.
#pragma once
#include <memory>
#include <optional>

#include "indexer.h"
#include "linear.h"
#include "port.h"
#include "program.h"
#include "rope.h"
#include "tiles.h"

namespace strata {

struct AttentionWeights {
  Port port;
  float eps;  // of q_norm and k_norm
  Linear q, k, v, o;
  const float* q_norm;  // [head_dim], or [heads * head_dim] when `whole`, or null
  const float* k_norm;
  bool whole;  // q_norm and k_norm are of all heads together
  bool gated;  // each head of q is followed by its gate
  int heads, kv_heads, head_dim;
  float scale;
  std::shared_ptr<Rope> rope;
};

// One layer's keys and values in the arena: [pages, kv_heads, units] (kv.h).
struct PagedMemory {
  uint8_t* k;
  uint8_t* v;
  size_t k_page, v_page;  // bytes from page to page
  int block;
  KvType type;
};

class Attention : public Op {
 public:
  Attention(const AttentionWeights& weights, const PagedMemory& memory,
            const std::optional<Indexer>& indexer);
  int width() const override { return weights_.port.width(); }
  void prepare(const Step& step) const override;
  size_t scratch(const Step& step, int threads) const override;
  void run(Member& member, const Step& step, std::byte* scratch) const override;

 private:
  struct Work;
  void block(Member& member, const Work& work) const;
  void project(Member& member, const Work& work) const;
  void norm_whole(const Work& work, int token) const;
  void write(const Work& work, int token, int head) const;
  void turn(float* vector, const float* norm, int position) const;
  void attend(const Work& work, const Item& item) const;
  void attend_to(const Work& work, const Item& item, const Queries& queries, int segment,
                 Sums into) const;
  void gate(const Work& work, const Item& item, float* y) const;
  void load_queries(const Work& work, const Item& item) const;
  Sums partial_sums(const Work& work, const Item& item, int segment) const;

  AttentionWeights weights_;
  PagedMemory memory_;
  KvForm form_;
  std::optional<Indexer> indexer_;
  Sight sight_;
  int group_;        // query heads of a key head
  int tile_tokens_;  // of a tile of queries
  int together_;     // tokens of a unit (kv.h)
};

}  // namespace strata
