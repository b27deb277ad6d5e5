// A model's step as a list of ops, run by one call.
//
// Knows what a step is (flat arrays, as in strata.types.ForwardPlan) and in which order
// ops follow each other; not what any of them computes. An op is built once, holds raw
// pointers to weights and pages that do not move, and keeps nothing between steps.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "isa.h"
#include "team.h"

namespace strata {

// Copy the state of `row` after its first `offset` tokens of the step into `slot`.
struct Capture {
  int32_t row, offset, slot;
};

struct Step {
  int count;    // tokens
  int rows;     // sequences
  int sampled;  // tokens whose logits are wanted
  int blocks;   // columns of page_table
  int last;     // largest position
  const int32_t* tokens;       // [count]
  const int32_t* positions;    // [count]
  const int32_t* row_starts;   // [rows + 1]
  const int32_t* page_table;   // [rows, blocks]
  const int32_t* write_slots;  // [count], or -1
  const int32_t* state_slots;  // [rows], or -1
  const Capture* captures;     // [capture_count]
  int capture_count;
  std::atomic<int>* written;   // [capture_count] ops that have written a capture
  const int32_t* sample;       // [sampled]
  float* x;                    // [count, width] the residual stream
  float* mixed;                // [count or sampled, mixed] what a Mixer leaves for the op after it
  float* logits;               // [sampled, vocabulary]
};

class Op {
 public:
  virtual ~Op() = default;
  // Floats of a row of the residual stream.
  virtual int width() const = 0;
  // Called by one thread before the step: what grows with positions grows here.
  virtual void prepare(const Step&) const {}
  // Bytes of scratch for a step with this many threads.
  virtual size_t scratch(const Step& step, int threads) const = 0;
  // Whether it keeps a state per sequence: it then reads and writes state_slots, writes every
  // capture, and counts it in `written` once the bytes are there.
  virtual bool stateful() const { return false; }
  // Floats of a row that it leaves in step.mixed.
  virtual int mixed() const { return 0; }
  // Called by every member, and does its work in phases only (team.h). scratch is
  // shared by them and aligned to 64 bytes.
  virtual void run(Member& member, const Step& step, std::byte* scratch) const = 0;
  // Asked after run: whether the step stops here, because the op needs what others provide.
  // The answer is the same for all members. Then `finish` is the rest of its work.
  virtual bool stopped() const { return false; }
  virtual void finish(Member&, const Step&, std::byte*) const {}
};

// Bytes that only grow, aligned to 64, on huge pages where the system has them.
class Buffer {
 public:
  Buffer() = default;
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  std::byte* at_least(size_t bytes);

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

class Program {
 public:
  using Work = std::function<void(Member&, const Step&, std::byte* scratch)>;

  Program(std::vector<std::shared_ptr<const Op>> ops, int threads);
  // Runs the ops on the step; its `x`, `mixed` and `written` are the program's own. Returns the
  // number of the op that it stopped at, or that of all ops: then the step is over. While it is
  // stopped the step's arrays must stay; a step that is never resumed leaves nothing behind.
  int run(Step step);
  // While stopped at this op: some of its work, by all members.
  void aside(const Work& work);
  // Finishes the op that it stopped at, and runs on as `run` does.
  int resume();
  // For each capture, whether all stateful ops have written it.
  std::vector<bool> written() const;

  int threads() const { return threads_; }
  // Of the step that is stopped.
  const Step& step() const { return step_; }
  std::byte* scratch() const { return all_scratch_; }

 private:
  void reserve();
  int advance(bool finish);

  std::vector<std::shared_ptr<const Op>> ops_;
  int threads_;
  Isa isa_;
  Buffer stream_, mixed_, scratch_;
  std::byte* all_scratch_ = nullptr;
  Step step_{};
  std::vector<std::atomic<int>> written_;
  size_t at_ = 0;  // the op that it stopped at
};

// Hands out 64-byte aligned pieces of a scratch; from null it only measures.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}
  template <class T>
  T* take(size_t count) {
    T* piece = base_ ? reinterpret_cast<T*>(base_ + used_) : nullptr;
    used_ += (count * sizeof(T) + 63) / 64 * 64;
    return piece;
  }
  size_t used() const { return used_; }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

}  // namespace strata
