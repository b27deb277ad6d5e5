// Gated DeltaNet: projections, a causal convolution and the delta rule over one state per
// sequence, a gated norm, the output projection.
//
// A step's tokens are taken in blocks, in order. In a block the convolution runs over each
// row's heads, then the rule over panels of columns of each head's state; both leave the state
// in its slot, so a long prompt is the same as many short ones.
#pragma once
#include "linear.h"
#include "port.h"
#include "program.h"

namespace strata {

struct DeltaWeights {
  Port port;
  Linear qkv, z, beta, alpha, out;
  const float* conv;     // [kernel, channels]
  const float* decay;    // [v_heads], negative
  const float* dt_bias;  // [v_heads]
  const float* norm;     // [dim]
  float eps;
  int k_heads, v_heads, dim, kernel;
  bool tiled;         // value head h belongs to key head h % k_heads, not to h / group
  bool sigmoid_gate;  // else silu
};

// One layer's states in the arena, float32.
struct DeltaMemory {
  float* conv;   // [window, channels] of slot 0
  float* state;  // [v_heads, dim, dim]
  size_t conv_slot, state_slot;  // floats from slot to slot
};

class Delta : public Op {
 public:
  Delta(const DeltaWeights& weights, const DeltaMemory& memory)
      : weights_(weights), memory_(memory) {}
  int width() const override { return weights_.port.width(); }
  bool stateful() const override { return true; }
  void prepare(const Step& step) const override;
  size_t scratch(const Step& step, int threads) const override;
  void run(Member& member, const Step& step, std::byte* scratch) const override;

 private:
  struct Work;
  void block(Member& member, const Work& work) const;
  void project(Member& member, const Work& work) const;
  void gates(const Work& work, int token) const;
  void convolve(const Work& work, int row, int head) const;
  void scan(const Work& work, int row, int head, int at, int columns) const;
  void output(Member& member, const Work& work) const;

  DeltaWeights weights_;
  DeltaMemory memory_;
};

}  // namespace strata
