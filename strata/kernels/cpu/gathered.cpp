#include "gathered.h"

#include <algorithm>
#include <cstring>

namespace strata {

Gathered::Gathered(Carver& carver, const Sight& sight, const KvForm& form, int id, int threads)
    : sight_(sight), form_(form) {
  auto own = [&]<class T>(T*& piece, size_t count) {
    count = (count + 63) / 64 * 64;  // whole cache lines
    T* all = carver.take<T>(count * threads);
    piece = all ? all + count * id : nullptr;
  };
  own(k_, kStep * form.vector());
  own(v_, kSegment * form.vector());
  own(pages_, static_cast<size_t>(sight.budget) / kSegment + 2);
}

Gathered::Run Gathered::run_at(const Keys& from, const int32_t* chosen, int position, int key,
                               int end) const {
  const int ratio = sight_.ratio, number = key / ratio, lane = key % ratio;
  int block = number;
  if (chosen) block = number < sight_.blocks() ? chosen[number] : (position + 1) / ratio;
  const int token = block * ratio;
  const size_t page = static_cast<size_t>(from.pages[token / from.block]);
  const size_t unit = static_cast<size_t>(token % from.block) * form_.vector();
  return {from.k + page * from.k_page + unit, from.v + page * from.v_page + unit, lane,
          std::min(ratio - lane, end - key)};
}

namespace {

// `rows` times `bytes`; kBytes where they are known beforehand, and lie one after the other.
template <size_t kBytes>
void copy_rows(const uint8_t* from, size_t step, uint8_t* into, size_t into_step, int rows,
               size_t bytes) {
  for (int i = 0; i < rows; ++i, from += kBytes ? kBytes : step, into += into_step)
    std::memcpy(into, from, kBytes ? kBytes : bytes);
}

void copy_whole(const uint8_t* from, uint8_t* into, size_t into_step, int rows, size_t bytes) {
  auto copy = copy_rows<0>;
  if (bytes == 4) copy = copy_rows<4>;
  if (bytes == 8) copy = copy_rows<8>;
  if (bytes == 16) copy = copy_rows<16>;
  copy(from, bytes, into, into_step, rows, bytes);
}

void prefetch(const uint8_t* bytes, size_t count) {
  for (size_t i = 0; i < count; i += 64) __builtin_prefetch(bytes + i);
}

}  // namespace

// The tokens of a run to `place` of the segment.
void Gathered::copy(const Run& run, int place) const {
  const int dim = form_.dim, ratio = sight_.ratio, groups = form_.groups();
  const size_t size = form_.element();
  // Rows of a number, or of a scale, for each of the unit's tokens.
  auto across = [&](const uint8_t* from, uint8_t* into, size_t step, int rows, size_t each) {
    into += place * each;
    if (run.count == ratio) return copy_whole(from, into, step * each, rows, ratio * each);
    copy_rows<0>(from + run.lane * each, ratio * each, into, step * each, rows, run.count * each);
  };
  across(run.k, k_, kStep, dim, size);
  across(run.k + form_.scales(ratio), k_ + form_.scales(kStep), kStep, groups, 2);
  std::memcpy(v_ + place * dim * size, run.v + run.lane * dim * size, run.count * dim * size);
  across(run.v + form_.scales(ratio), v_ + form_.scales(kSegment), kSegment, groups, 2);
}

void Gathered::load(const Keys& from, const int32_t* chosen, int position, int segment) const {
  constexpr int kAhead = 2;  // blocks
  const int ratio = sight_.ratio, first = segment * kSegment;
  const int end = std::min(sight_.keys(position), first + kSegment);
  pages_[segment] = 0;
  for (int key = first; key < end;) {
    const Run run = run_at(from, chosen, position, key, end);
    if (const int later = key + kAhead * ratio; later < end) {
      const Run next = run_at(from, chosen, position, later, end);
      prefetch(next.k, ratio * form_.vector());
      prefetch(next.v, ratio * form_.vector());
    }
    copy(run, key - first);
    key += run.count;
  }
}

}  // namespace strata
