// Rows of tokens on their way through experts of one form: down(silu(gate(h)) * up(h)).
//
// Knows what lies where inside an expert; not who chose it, nor why it is where it is.
#pragma once
#include <algorithm>
#include <atomic>

#include "activations.h"
#include "linear.h"
#include "program.h"

namespace strata {

// One of an expert's matrices, packed, `offset` bytes after the expert's first one.
struct ExpertMatrix {
  int format, n, k;
  size_t offset;
  Linear of(uintptr_t expert) const {
    return {format, n, k, reinterpret_cast<const uint8_t*>(expert + offset), nullptr};
  }
};

struct ExpertForm {
  ExpertMatrix gate, up, down;
};

// How experts are cut into tasks: `wide` is gate and up together. No result depends on it.
struct Cut {
  // For a phase of this many experts.
  Cut(const ExpertForm& form, int experts, int threads);
  int columns() const { return std::max(wide_tiles, down_tiles) * tile_rows(); }

  int wide_tiles, down_tiles;    // of a slice
  int wide_slices, down_slices;  // of an expert
};

// The rows that pass through one expert; none where there is nothing to do.
struct Batch {
  int unit = 0;              // the expert's number in the group
  uintptr_t expert = 0;      // its address
  const int32_t* tokens = nullptr;  // [rows]
  int first = 0, rows = 0;   // of the group's buffers
};

// What a block of tokens needs to pass through up to `units` experts.
class Group {
 public:
  static constexpr int kRows = 32;  // whose part of a sum a thread holds at a time

  // `rows` (token, expert) pairs in all. Lies alike for any number of threads.
  Group(const ExpertForm& form, Carver& carver, int rows, int units);
  int units() const { return units_; }
  // Before the phase of an expert's wide slices.
  void expect(int unit, const Cut& cut) const {
    pending_[unit].store(cut.wide_slices, std::memory_order_relaxed);
  }
  // A slice of gate and up. Whoever finishes an expert's last one prepares the rows for down.
  // `own` has room for cut.columns() * min(rows, kRows) floats.
  void widen(const Batch& batch, const Cut& cut, int slice, const Activations& in,
             float* own) const;
  void narrow(const Batch& batch, const Cut& cut, int slice) const;
  // The output of a row, hidden floats.
  const float* out(int row) const { return out_ + static_cast<size_t>(row) * form_.down.n; }

 private:
  const ExpertForm& form_;
  int units_;
  Activations inner_;          // [rows] of gated
  float* gated_;               // [rows, ffn]
  float* out_;                 // [rows, hidden]
  std::atomic<int>* pending_;  // [units] wide slices that are left
};

}  // namespace strata
