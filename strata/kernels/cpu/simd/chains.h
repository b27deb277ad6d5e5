// Products of rows with columns of pages or of a widened tile: chains of multiply-adds.
//
// An element of c is one chain over the depth, ascending, for any number of rows and vectors at
// once. What a column is, `Columns::at` knows: vector j of row i of the depth, as floats. Numbers
// of 8 bits times their scale are exact floats, so they give the bits of a widened tile.
#pragma once
#include "floats.h"
#include "kv.h"

namespace strata::STRATA_ISA {

namespace {

constexpr int kRowsAtOnce = 6;
constexpr int kVectorsAtOnce = kLanes == 16 ? 4 : 2;

// Floats, halves or bfloat16, `step` from one row to the next; a pointer for each vector.
template <class T>
struct PlainColumns {
  const T* const* vector;
  size_t step;
  Lanes at(int j, int i) const { return load(vector[j] + i * step); }
};

// Keys of 8 bits within one group of their components: a vector of scales for each of theirs.
struct ScaledKeys {
  const int8_t* const* vector;
  size_t step;
  const float* scales;  // [vectors, kLanes]
  Lanes at(int j, int i) const {
    return mul(load(vector[j] + i * step), load(scales + j * kLanes));
  }
};

// Values of 8 bits: rows of them, each with its groups' scales.
struct ScaledValues {
  const int8_t* values;
  size_t step;
  const float* scales;  // [rows, groups]
  int groups;
  Lanes at(int j, int i) const {
    return mul(load(values + i * step + j * kLanes),
               splat(scales[i * groups + j * kLanes / kScaled]));
  }
};

// c[rows, kVectors] (+)= a[rows, depth] * columns[depth, kVectors], those from `first` on.
template <int kRows, int kVectors, bool kAdd, class Columns>
inline void block_product(const float* a, size_t lda, const Columns& columns, int first, int depth,
                          float* c, size_t ldc) {
  Lanes sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r)
    for (int j = 0; j < kVectors; ++j)
      sums[r][j] = kAdd ? load(c + r * ldc + j * kLanes) : zero();
  for (int i = 0; i < depth; ++i) {
    Lanes column[kVectors];
    for (int j = 0; j < kVectors; ++j) column[j] = columns.at(first + j, i);
    for (int r = 0; r < kRows; ++r) {
      Lanes x = splat(a[r * lda + i]);
      for (int j = 0; j < kVectors; ++j) sums[r][j] = fma(x, column[j], sums[r][j]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int j = 0; j < kVectors; ++j) store(c + r * ldc + j * kLanes, sums[r][j]);
}

template <int kVectors, bool kAdd, class Columns>
void strip_product(const float* a, size_t lda, const Columns& b, int first, int depth, float* c,
                   size_t ldc, int rows) {
  int r = 0;
  for (; r + kRowsAtOnce <= rows; r += kRowsAtOnce)
    block_product<kRowsAtOnce, kVectors, kAdd>(a + r * lda, lda, b, first, depth, c + r * ldc, ldc);
  const float* rest = a + r * lda;
  float* into = c + r * ldc;
  switch (rows - r) {
    case 5: return block_product<5, kVectors, kAdd>(rest, lda, b, first, depth, into, ldc);
    case 4: return block_product<4, kVectors, kAdd>(rest, lda, b, first, depth, into, ldc);
    case 3: return block_product<3, kVectors, kAdd>(rest, lda, b, first, depth, into, ldc);
    case 2: return block_product<2, kVectors, kAdd>(rest, lda, b, first, depth, into, ldc);
    case 1: return block_product<1, kVectors, kAdd>(rest, lda, b, first, depth, into, ldc);
    default: return;
  }
}

template <bool kAdd, class Columns>
void product(const float* a, size_t lda, const Columns& b, int depth, float* c, size_t ldc,
             int rows, int vectors) {
  int j = 0;
  for (; j + kVectorsAtOnce <= vectors; j += kVectorsAtOnce)
    strip_product<kVectorsAtOnce, kAdd>(a, lda, b, j, depth, c + j * kLanes, ldc, rows);
  if constexpr (kVectorsAtOnce == 4)
    for (; j + 2 <= vectors; j += 2)
      strip_product<2, kAdd>(a, lda, b, j, depth, c + j * kLanes, ldc, rows);
  for (; j < vectors; ++j)
    strip_product<1, kAdd>(a, lda, b, j, depth, c + j * kLanes, ldc, rows);
}

}  // namespace

}  // namespace strata::STRATA_ISA
