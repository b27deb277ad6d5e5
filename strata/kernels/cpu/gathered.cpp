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
  const int ratio = sight_.ratio, number = key / ratio, tail = (position + 1) / ratio;
  auto block = [&](int i) { return i < sight_.blocks() ? chosen[i] : tail; };
  const int token = block(number) * ratio + key % ratio;
  const int page_end = (token / from.block + 1) * from.block;
  int next = number + 1, stop = (block(number) + 1) * ratio;
  while (stop < page_end && next * ratio < end && block(next) * ratio == stop) {
    stop += ratio;
    ++next;
  }
  const size_t page = static_cast<size_t>(from.pages[token / from.block]);
  const size_t slot = static_cast<size_t>(token % from.block);
  return {from.k + page * from.k_page + slot, from.v + page * from.v_page + slot * head_dim_,
          std::min(stop - token, end - key)};
}

namespace {

// `count` halves of each component; what follows is fetched meanwhile.
template <int kCount>
void copy_keys(const uint16_t* k, size_t step, uint16_t* into, size_t into_step, int dim, int count,
               const uint16_t* next) {
  for (int d = 0; d < dim; ++d, k += step, next += step, into += into_step) {
    __builtin_prefetch(next);
    std::memcpy(into, k, sizeof(uint16_t) * (kCount ? kCount : count));
  }
}

}  // namespace

void Gathered::load(const Keys& from, const int32_t* chosen, int position, int segment) const {
  const int dim = head_dim_, first = segment * kSegment;
  const int end = std::min(sight_.keys(position), first + kSegment);
  pages_[segment] = 0;
  Run run = run_at(from, chosen, position, first, end);
  for (int key = first; key < end;) {
    const int after = key + run.count;
    const Run next = after < end ? run_at(from, chosen, position, after, end) : run;
    uint16_t* into = k_ + (key - first);
    auto copy = run.count == 4 ? copy_keys<4> : run.count == 8 ? copy_keys<8>
                : run.count == 16 ? copy_keys<16> : copy_keys<0>;
    copy(run.k, from.k_step, into, kStep, dim, run.count, next.k);
    std::copy_n(run.v, static_cast<size_t>(run.count) * dim,
                v_ + static_cast<size_t>(key - first) * dim);
    key = after;
    run = next;
  }
}

}  // namespace strata
