#include "routes.h"

#include <algorithm>
#include <cmath>

namespace strata {

Routes::Routes(Carver& carver, int tokens, int experts, int top_k, bool normalise)
    : tokens_(tokens),
      experts_(experts),
      top_k_(top_k),
      normalise_(normalise),
      chosen_(carver.take<int32_t>(slots())),
      slot_(carver.take<int32_t>(slots())),
      order_(carver.take<int32_t>(slots())),
      used_(carver.take<int32_t>(experts)),
      starts_(carver.take<int32_t>(experts + 1)),
      next_(carver.take<int32_t>(experts)),
      active_(carver.take<int32_t>(1)),
      weight_(carver.take<float>(slots())) {}

void most_likely(const float* logits, int of, int count, int32_t* best) {
  int held = 0;
  for (int e = 0; e < of; ++e) {
    if (held == count && !(logits[e] > logits[best[held - 1]])) continue;
    int at = held < count ? held++ : held - 1;
    for (; at > 0 && logits[e] > logits[best[at - 1]]; --at) best[at] = best[at - 1];
    best[at] = e;
  }
}

int Routes::unit_of(int expert) const {
  const int32_t* at = std::lower_bound(used_, used_ + active(), expert);
  return at < used_ + active() && *at == expert ? static_cast<int>(at - used_) : -1;
}

void Routes::choose(int token, const float* logits) const {
  int32_t* best = chosen_ + static_cast<size_t>(token) * top_k_;
  most_likely(logits, experts_, top_k_, best);
  float* weight = weight_ + static_cast<size_t>(token) * top_k_;
  const float top = logits[best[0]];
  float total = 0;
  for (int k = 0; k < top_k_; ++k) total += weight[k] = std::exp(logits[best[k]] - top);
  if (!normalise_) {
    total = 0;
    for (int e = 0; e < experts_; ++e) total += std::exp(logits[e] - top);
  }
  for (int k = 0; k < top_k_; ++k) weight[k] /= total;
}

void Routes::sort() const {
  std::fill(next_, next_ + experts_, 0);
  for (int i = 0; i < slots(); ++i) ++next_[chosen_[i]];
  int used = 0, slot = 0;
  for (int e = 0; e < experts_; ++e) {
    const int count = next_[e];
    next_[e] = slot;
    if (count == 0) continue;
    used_[used] = e;
    starts_[used++] = slot;
    slot += count;
  }
  starts_[used] = slot;
  *active_ = used;
  for (int i = 0; i < slots(); ++i) {
    slot_[i] = next_[chosen_[i]]++;
    order_[slot_[i]] = i / top_k_;
  }
}

}  // namespace strata
