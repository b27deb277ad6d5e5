// The keys and values that queries see where an indexer chooses, copied together a segment at a
// time.
//
// They lie as in a page of kSegment tokens, so that a segment of them is attended to like any
// other (kv.h). Nothing of what was not chosen is read.
#pragma once
#include "program.h"
#include "rows.h"
#include "tiles.h"

namespace strata {

class Gathered {
 public:
  Gathered(Carver& carver, const Sight& sight, const KvForm& form, int id, int threads);
  // Segment `segment` of what a query at `position` sees of `from`: the tokens of its chosen
  // blocks, ascending, then those behind the last whole block; without `chosen` all tokens.
  void load(const Keys& from, const int32_t* chosen, int position, int segment) const;
  // Of the segment that was loaded last.
  Keys keys() const { return {k_, v_, 0, 0, pages_, kSegment, kStep, form_}; }

 private:
  // No power of two: the components of a key would all fall into a few sets of the cache.
  static constexpr int kStep = kSegment + 32;
  // Tokens of one block: its units, and those of its tokens from `lane` on.
  struct Run {
    const uint8_t *k, *v;
    int lane, count;
  };
  void copy(const Run& run, int place) const;
  Run run_at(const Keys& from, const int32_t* chosen, int position, int key, int end) const;
  Sight sight_;
  KvForm form_;
  uint8_t *k_, *v_;
  int32_t* pages_;  // 0 for every segment
};

}  // namespace strata
