// Products of rows with columns of pages or of a widened tile: chains of multiply-adds.
//
// An element of c is one chain over the depth, ascending, for any number of rows and vectors at
// once, and whatever the columns' numbers are stored as.
#pragma once
#include "floats.h"
#include "kv.h"

namespace strata::STRATA_ISA {

namespace {

constexpr int kRowsAtOnce = 6;
constexpr int kVectorsAtOnce = kRegisters == 32 ? 4 : 2;

// [depth, vectors]: a pointer for each vector, `step` numbers from one row to the next. `ahead`,
// unless null, are columns that will be asked for next: the pages lie apart, and what the
// processor fetches by itself begins anew in each.
template <class T>
struct Columns {
  const T* const* vector;
  size_t step;
  const T* const* ahead = nullptr;
};

// What a product does with the sums of its depth.
enum class Into { set, add, add_scaled };

// c [rows, kVectors] becomes the product of a [rows, depth] with the columns from `first` on, or c
// plus it, or c plus it times `scales` [vectors, kLanes].
template <int kRows, int kVectors, Into kInto, class T>
inline void block_product(const float* a, size_t lda, const Columns<T>& columns, int first,
                          int depth, const float* scales, float* c, size_t ldc, bool fetch) {
  const T* const* from = columns.vector + first;
  const T* const* ahead = fetch && columns.ahead ? columns.ahead + first : nullptr;
  const size_t step = columns.step;
  Lanes sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r)
    for (int j = 0; j < kVectors; ++j)
      sums[r][j] = kInto == Into::add ? load(c + r * ldc + j * kLanes) : zero();
  for (int i = 0; i < depth; ++i) {
    Lanes column[kVectors];
    for (int j = 0; j < kVectors; ++j) column[j] = load(from[j] + i * step);
    if (ahead)  // one at a time, between the sums: many at once would keep the sums waiting
      for (int j = 0; j < kVectors; ++j) __builtin_prefetch(ahead[j] + i * step);
    for (int r = 0; r < kRows; ++r) {
      Lanes x = splat(a[r * lda + i]);
      for (int j = 0; j < kVectors; ++j) sums[r][j] = fma(x, column[j], sums[r][j]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int j = 0; j < kVectors; ++j) {
      float* into = c + r * ldc + j * kLanes;
      Lanes sum = sums[r][j];
      if (kInto == Into::add_scaled)
        sum = fma(sum, load(scales + (first + j) * kLanes), load(into));
      store(into, sum);
    }
}

template <int kVectors, Into kInto, class T>
void strip_product(const float* a, size_t lda, const Columns<T>& b, int first, int depth,
                   const float* scales, float* c, size_t ldc, int rows) {
  auto block = [&]<int kRows>(int r) {
    block_product<kRows, kVectors, kInto>(a + r * lda, lda, b, first, depth, scales, c + r * ldc,
                                          ldc, r == 0);
  };
  int r = 0;
  for (; r + kRowsAtOnce <= rows; r += kRowsAtOnce) block.template operator()<kRowsAtOnce>(r);
  switch (rows - r) {
    case 5: return block.template operator()<5>(r);
    case 4: return block.template operator()<4>(r);
    case 3: return block.template operator()<3>(r);
    case 2: return block.template operator()<2>(r);
    case 1: return block.template operator()<1>(r);
    default: return;
  }
}

template <Into kInto, class T>
void product(const float* a, size_t lda, const Columns<T>& b, int depth, float* c, size_t ldc,
             int rows, int vectors, const float* scales = nullptr) {
  int j = 0;
  auto strip = [&]<int kVectors>() {
    strip_product<kVectors, kInto>(a, lda, b, j, depth, scales, c + j * kLanes, ldc, rows);
    j += kVectors;
  };
  while (j + kVectorsAtOnce <= vectors) strip.template operator()<kVectorsAtOnce>();
  if constexpr (kVectorsAtOnce == 4)
    if (j + 2 <= vectors) strip.template operator()<2>();
  while (j < vectors) strip.template operator()<1>();
}

}  // namespace

}  // namespace strata::STRATA_ISA
