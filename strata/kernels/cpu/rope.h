// Cosines and sines of rotary positions, computed once for every position ever used.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace strata {

class Rope {
 public:
  // inverse: radians per position of each pair; factor multiplies cosines and sines.
  Rope(std::vector<float> inverse, float factor);
  int pairs() const { return static_cast<int>(inverse_.size()); }
  // Makes positions 0..last available. Not while others read.
  void reach(int last);
  const float* cosines(int position) const {
    return table_.data() + static_cast<size_t>(position) * 2 * inverse_.size();
  }
  const float* sines(int position) const { return cosines(position) + inverse_.size(); }

 private:
  std::vector<float> inverse_;
  float factor_;
  int known_ = 0;  // positions
  std::vector<float> table_;  // [known, 2, pairs]
};

}  // namespace strata
