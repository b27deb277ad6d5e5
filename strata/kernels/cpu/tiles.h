// Tiles of queries, and the items of attention work that they make.
//
// A tile is up to `most` consecutive tokens of one sequence, for one key head. Where
// tiles are few, each of its segments of keys is an item of its own. That choice
// decides who computes what, never a result: segments are always summed separately.
#pragma once
#include <algorithm>

#include "program.h"
#include "rows.h"

namespace strata {

// How far a query sees: every key up to its own, or, with an indexer (indexer.h), those of
// `budget` tokens in chosen blocks of `ratio` and those behind the last whole block.
struct Sight {
  int budget = 0;  // 0: no indexer
  int ratio = 1;
  int blocks() const { return budget / ratio; }
  // Whether a token at the position sees less than everything.
  bool sparse(int position) const { return budget && position + 1 >= budget + ratio; }
  int keys(int position) const {
    return sparse(position) ? budget + (position + 1) % ratio : position + 1;
  }
};

struct Tile {
  int row;       // sequence
  int first;     // token of the step
  int count;     // tokens
  int segments;  // of keys that its last token sees
  bool sparse;   // one token, whose keys are gathered
};

struct Item {
  Tile tile;
  int head;     // key head
  int segment;  // or -1: all of them
  int counter;  // number of (tile, head)
  int partial;  // tokens of partial sums before those of (tile, head)
};

class Tiling {
 public:
  // Of the tokens [first, first + count) of a step.
  Tiling(const Step& step, const Sight& sight, int first, int count, int most, int kv_heads,
         int threads)
      : step_(step),
        sight_(sight),
        first_(first),
        end_(first + count),
        most_(most),
        kv_heads_(kv_heads) {
    each([&](const Tile& tile) {
      single_ = single_ && tile.count == 1 && tile.row != last_row_;
      last_row_ = tile.row;
      ++tiles_;
      segments_ += tile.segments;
      partials_ += tile.segments * tile.count;
      return false;
    });
    constexpr int kPerThread = 8;
    split_ = segments_ > tiles_ && tiles_ * kv_heads < kPerThread * threads;
  }

  // No sequence has two tokens here: whoever attends for a token may write its key.
  bool single() const { return single_; }
  int counters() const { return split_ ? tiles_ * kv_heads_ : 0; }
  // Segments of the (tile, key head) of a counter.
  int segments_of(int counter) const {
    int segments = 0;
    each([&](const Tile& tile) {
      segments = tile.segments;
      counter -= kv_heads_;
      return counter < 0;
    });
    return segments;
  }
  // Tokens times segments times key heads whose partial sums are kept.
  int partials() const { return split_ ? partials_ * kv_heads_ : 0; }
  int items() const { return (split_ ? segments_ : tiles_) * kv_heads_; }

  Item item(int index) const {
    Item item{};
    each([&](const Tile& tile) {
      int here = kv_heads_ * (split_ ? tile.segments : 1);
      if (index >= here) {
        index -= here;
        item.counter += kv_heads_;
        item.partial += kv_heads_ * tile.segments * tile.count;
        return false;
      }
      item.tile = tile;
      item.head = index % kv_heads_;
      item.segment = split_ ? index / kv_heads_ : -1;
      item.counter += item.head;
      item.partial += item.head * tile.segments * tile.count;
      return true;
    });
    return item;
  }

 private:
  // Calls visit for every tile until it returns true.
  template <class Visit>
  void each(Visit visit) const {
    for (int row = 0; row < step_.rows; ++row) {
      int stop = std::min(end_, step_.row_starts[row + 1]);
      for (int t = std::max(first_, step_.row_starts[row]); t < stop;) {
        const bool sparse = sight_.sparse(step_.positions[t]);
        int count = sparse ? 1 : std::min(most_, stop - t);
        while (!sparse && sight_.sparse(step_.positions[t + count - 1])) --count;
        int segments = (sight_.keys(step_.positions[t + count - 1]) - 1) / kSegment + 1;
        if (visit(Tile{row, t, count, segments, sparse})) return;
        t += count;
      }
    }
  }

  const Step& step_;
  Sight sight_;
  int first_, end_, most_, kv_heads_;
  int tiles_ = 0, segments_ = 0, partials_ = 0, last_row_ = -1;
  bool single_ = true, split_ = false;
};

}  // namespace strata
