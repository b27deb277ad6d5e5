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
  own(k_, static_cast<size_t>(kStep) * head_dim);
  own(v_, static_cast<size_t>(kSegment) * head_dim);
  own(pages_, static_cast<size_t>(sight.budget) / kSegment + 2);
}

Gathered::Run Gathered::run_at(const Keys& from, const int32_t* chosen, int position, int key,
                               int end) const {
  const int ratio = sight_.ratio, number = key / ratio, lane = key % ratio;
  int block = number;
  if (chosen) block = number < sight_.blocks() ? chosen[number] : (position + 1) / ratio;
  const int token = block * ratio;
  const size_t page = static_cast<size_t>(from.pages[token / from.block]);
  const size_t first = static_cast<size_t>(token % from.block) * head_dim_;
  return {from.k + page * from.k_page + first + lane,
          from.v + page * from.v_page + first + static_cast<size_t>(lane) * head_dim_,
          std::min(ratio - lane, end - key)};
}

namespace {

// `count` halves of each component.
template <int kCount>
void copy_keys(const uint16_t* k, size_t step, uint16_t* into, size_t into_step, int dim,
               int count) {
  for (int d = 0; d < dim; ++d, k += kCount ? kCount : step, into += into_step)
    std::memcpy(into, k, sizeof(uint16_t) * (kCount ? kCount : count));
}

void prefetch(const uint16_t* halves, int count) {
  for (int i = 0; i < count; i += 32) __builtin_prefetch(halves + i);
}

}  // namespace

void Gathered::load(const Keys& from, const int32_t* chosen, int position, int segment) const {
  constexpr int kAhead = 2;  // blocks
  const int dim = head_dim_, ratio = sight_.ratio, first = segment * kSegment;
  const int end = std::min(sight_.keys(position), first + kSegment);
  pages_[segment] = 0;
  for (int key = first; key < end;) {
    const Run run = run_at(from, chosen, position, key, end);
    if (const int later = key + kAhead * ratio; later < end) {
      const Run next = run_at(from, chosen, position, later, end);
      prefetch(next.k, ratio * dim);
      prefetch(next.v, next.count * dim);
    }
    uint16_t* into = k_ + (key - first);
    const bool whole = run.count == ratio;
    (whole && ratio == 4 ? copy_keys<4> : whole && ratio == 8 ? copy_keys<8> : copy_keys<0>)(
        run.k, from.k_step, into, kStep, dim, run.count);
    std::copy_n(run.v, static_cast<size_t>(run.count) * dim,
                v_ + static_cast<size_t>(key - first) * dim);
    key += run.count;
  }
}

}  // namespace strata
