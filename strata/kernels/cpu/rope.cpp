#include "rope.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace strata {

Rope::Rope(std::vector<float> inverse, float factor)
    : inverse_(std::move(inverse)), factor_(factor) {}

void Rope::reach(int last) {
  if (last < known_) return;
  constexpr int kStep = 1024;  // positions added at a time
  int wanted = (last / kStep + 1) * kStep;
  table_.resize(static_cast<size_t>(wanted) * 2 * inverse_.size());
  for (int position = known_; position < wanted; ++position) {
    float* row = table_.data() + static_cast<size_t>(position) * 2 * inverse_.size();
    for (size_t i = 0; i < inverse_.size(); ++i) {
      // The angle is rounded to float as the models' own code does it.
      double angle = static_cast<float>(position) * inverse_[i];
      row[i] = static_cast<float>(std::cos(angle)) * factor_;
      row[inverse_.size() + i] = static_cast<float>(std::sin(angle)) * factor_;
    }
  }
  known_ = wanted;
}

}  // namespace strata
