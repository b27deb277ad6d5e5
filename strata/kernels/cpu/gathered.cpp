#include "gathered.h"

#include <algorithm>
#include <cstring>

namespace strata {

Gathered::Gathered(Carver& carver, const Sight& sight, int head_dim, int id, int threads)
    : sight_(sight), head_dim_(head_dim) {
  auto own = [&]<class T>(T*& piece, size_t count) {
    count = (count + 31) / 32 * 32;  // whole cache lines
    T* all = carver.take<T>(count * threads);
    piece = all ? all + count * id : nullptr;
  };
  own(k_, static_cast<size_t>(kSegment) * head_dim);
  own(v_, static_cast<size_t>(kSegment) * head_dim);
  own(pages_, static_cast<size_t>(sight.budget) / kSegment + 2);
}

void Gathered::load(const Keys& from, const int32_t* chosen, int position, int segment) const {
  const int dim = head_dim_, ratio = sight_.ratio;
  const int end = std::min(sight_.keys(position), (segment + 1) * kSegment);
  pages_[segment] = 0;
  for (int key = segment * kSegment; key < end;) {
    const int number = key / ratio, offset = key % ratio;
    const int block = number < sight_.blocks() ? chosen[number] : (position + 1) / ratio;
    const int token = block * ratio + offset, count = std::min(ratio - offset, end - key);
    const size_t page = static_cast<size_t>(from.pages[token / from.block]);
    const size_t slot = static_cast<size_t>(token % from.block);
    const uint16_t* k = from.k + page * from.k_page + slot;
    const uint16_t* v = from.v + page * from.v_page + slot * dim;
    const int at = key % kSegment;
    uint16_t* into = k_ + at;
    if (count == 4) {  // one word: what models have
      for (int d = 0; d < dim; ++d, k += from.block, into += kSegment) std::memcpy(into, k, 8);
    } else {
      for (int d = 0; d < dim; ++d, k += from.block, into += kSegment)
        for (int i = 0; i < count; ++i) into[i] = k[i];
    }
    std::copy(v, v + static_cast<size_t>(count) * dim, v_ + static_cast<size_t>(at) * dim);
    key += count;
  }
}

}  // namespace strata
