// The rows of a step as ops with a state per sequence see them.
//
// A row's tokens in a block are cut where a capture is wanted: run a part, copy the state,
// go on. Knows nothing of what a state holds.
#pragma once
#include <algorithm>
#include <stdexcept>

#include "program.h"

namespace strata {

// Throws std::invalid_argument for a row of tokens without a state, or a capture without a row.
inline void require_states(const Step& step) {
  for (int i = 0; i < step.capture_count; ++i)
    if (step.captures[i].row < 0 || step.captures[i].row >= step.rows)
      throw std::invalid_argument("a capture of a row that the plan does not have");
  for (int row = 0; row < step.rows; ++row)
    if (step.row_starts[row] < step.row_starts[row + 1] && step.state_slots[row] < 0)
      throw std::invalid_argument("a row of the plan has no state slot");
}

// Rows that have tokens in [first, end) are within [begin, end) of these.
struct RowRange {
  int begin, end;
};
inline RowRange rows_between(const Step& step, int first, int end) {
  const int32_t* starts = step.row_starts;
  const int32_t* stop = starts + step.rows + 1;
  return {static_cast<int>(std::upper_bound(starts, stop, first) - starts) - 1,
          static_cast<int>(std::lower_bound(starts, stop, end) - starts)};
}

// The token before which a capture is taken.
inline int capture_token(const Step& step, const Capture& capture) {
  return step.row_starts[capture.row] + capture.offset;
}

// For the row's tokens in [first, end): run(from, to) for every part, in order, and after it
// copy(slot) for the captures wanted there.
template <class Run, class Copy>
void each_part(const Step& step, int row, int first, int end, Run run, Copy copy) {
  first = std::max(first, step.row_starts[row]);
  end = std::min(end, step.row_starts[row + 1]);
  const Capture* last = step.captures + step.capture_count;
  while (first < end) {
    int to = end;
    for (const Capture* c = step.captures; c != last; ++c)
      if (c->row == row && capture_token(step, *c) > first)
        to = std::min(to, capture_token(step, *c));
    run(first, to);
    for (const Capture* c = step.captures; c != last; ++c)
      if (c->row == row && capture_token(step, *c) == to) copy(c->slot);
    first = to;
  }
}

// Counts the captures taken behind the tokens [first, end), once their bytes are there.
inline void count_written(const Step& step, int first, int end) {
  for (int i = 0; i < step.capture_count; ++i) {
    const Capture& capture = step.captures[i];
    const int token = capture_token(step, capture);
    if (token > std::max(first, step.row_starts[capture.row]) &&
        token <= std::min(end, step.row_starts[capture.row + 1]))
      step.written[i].fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace strata
