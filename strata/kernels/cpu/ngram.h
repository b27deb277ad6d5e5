// Hashed n-gram embeddings, added to the residual streams.
//
// A step's tokens are taken in blocks, in order: rows of a table that is read where it lies, or
// of which the step's rows were fetched, projections to a value and to a key for each stream, the value gated by the match of key and
// stream, and a dilated causal convolution of it. The last tokens and the convolution's window
// are kept in the sequence's state.
#pragma once
#include <vector>

#include "linear.h"
#include "program.h"

namespace strata {

// Rows of the table that lie together.
struct TablePart {
  int format;
  const std::byte* rows;
  int64_t first;  // number of the first row
};

struct NgramWeights {
  std::vector<TablePart> table;  // ascending
  const std::byte* fetched;      // rows of the first part's format; null: read from the table
  int columns;                   // of the table
  std::vector<int64_t> multipliers;     // of the token and of those before it
  std::vector<int64_t> sizes, offsets;  // of each head, those of two tokens first
  int eos, streams;
  Linear key, value;
  const float* norm_key;  // [width], as the others
  const float* norm_query;
  const float* norm_conv;
  const float* conv;  // [kernel, width]
  float eps;
  int kernel, dilation;
};

// One layer's states in the arena; all zeros before the first token.
struct NgramMemory {
  int32_t* history;  // [multipliers - 1] of slot 0, tokens + 1, oldest first
  float* conv;       // [window, width]
  size_t history_slot, conv_slot;  // elements from slot to slot
};

class Ngram : public Op {
 public:
  Ngram(NgramWeights weights, const NgramMemory& memory)
      : weights_(std::move(weights)), memory_(memory) {}
  int width() const override { return weights_.key.n; }
  bool stateful() const override { return true; }
  void prepare(const Step& step) const override;
  size_t scratch(const Step& step, int threads) const override;
  void run(Member& member, const Step& step, std::byte* scratch) const override;
  // The table's rows for a step that has not begun, by token and head -> rows [count, heads].
  void rows(const Step& step, int64_t* rows) const;
  // Which of `fetched` these are for the next step, [count, heads].
  void set_slots(const int32_t* slots) { slots_ = slots; }
  // The factor of all rows of the table.
  void set_scale(float scale) { scale_ = scale; }

 private:
  struct Work;
  int past() const { return static_cast<int>(weights_.multipliers.size()) - 1; }
  void block(Member& member, const Work& work) const;
  void project(Member& member, const Work& work) const;
  void embed(const Work& work, int token) const;
  template <class Take>
  void each_row(const Step& step, int row, int begin, int token, Take take) const;
  int64_t token_before(const Step& step, int row, int begin, int token, int back) const;
  void lookup(int64_t row, float* out) const;
  void gate(const Work& work, int token, int stream) const;
  void remember(const Work& work, int row) const;
  void convolve(const Work& work, int row, int at, int channels) const;

  NgramWeights weights_;
  NgramMemory memory_;
  const int32_t* slots_ = nullptr;
  float scale_ = 1;
};

}  // namespace strata
