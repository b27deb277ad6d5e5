// Which experts a block of tokens uses, and its (token, place) slots in the experts' order.
//
// Knows router logits, not what an expert is.
#pragma once
#include <cstdint>

#include "program.h"

namespace strata {

// The `count` largest of `of` logits, the largest first, the first among equals -> best.
void most_likely(const float* logits, int of, int count, int32_t* best);

class Routes {
 public:
  Routes(Carver& carver, int tokens, int experts, int top_k, bool normalise);

  // A token's experts, the most likely first, the one with the smaller number among equals;
  // and their weights, softmax over all logits, divided by their sum when normalised.
  void choose(int token, const float* logits) const;
  // After every token has chosen: slots by expert, an expert's by token.
  void sort() const;

  int slots() const { return tokens_ * top_k_; }
  int active() const { return *active_; }  // experts that are used
  int expert(int i) const { return used_[i]; }
  int unit_of(int expert) const;           // its number among them, or -1
  int first(int i) const { return starts_[i]; }  // slot of the i-th used expert
  int rows(int i) const { return starts_[i + 1] - starts_[i]; }
  const int32_t* chosen() const { return chosen_; }   // [tokens, top_k]
  const int32_t* order() const { return order_; }     // [slots] token of a slot
  const int32_t* slots_of(int token) const { return slot_ + token * top_k_; }  // in places' order
  const float* weights_of(int token) const { return weight_ + token * top_k_; }

 private:
  int tokens_, experts_, top_k_;
  bool normalise_;
  int32_t *chosen_, *slot_, *order_, *used_, *starts_, *next_, *active_;
  float* weight_;
};

}  // namespace strata
