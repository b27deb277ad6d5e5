// Scores of an index query with the keys of blocks.
//
// A dot product is one chain of multiply-adds over vectors of dim, ascending, then its lanes;
// heads are added in order. Neither depends on how many keys or heads are taken at once.
#include "floats.h"
#include "row_arithmetic.h"

namespace strata::STRATA_ISA {

namespace {

// scores[key] += sum of the heads' positive products.
template <int kKeys, int kHeads>
void some(const float* keys, const float* queries, int dim, float* scores) {
  Lanes sums[kKeys][kHeads];
  for (int k = 0; k < kKeys; ++k)
    for (int h = 0; h < kHeads; ++h) sums[k][h] = zero();
  for (int i = 0; i < dim; i += kLanes) {
    const int n = dim - i < kLanes ? dim - i : kLanes;
    Lanes key[kKeys];
    for (int k = 0; k < kKeys; ++k) {
      const float* from = keys + k * dim + i;
      key[k] = n == kLanes ? load(from) : load_part(from, n);
    }
    for (int h = 0; h < kHeads; ++h) {
      const float* from = queries + h * dim + i;
      const Lanes q = n == kLanes ? load(from) : load_part(from, n);
      for (int k = 0; k < kKeys; ++k) sums[k][h] = fma(q, key[k], sums[k][h]);
    }
  }
  for (int k = 0; k < kKeys; ++k)
    for (int h = 0; h < kHeads; ++h) {
      const float product = sum(sums[k][h]);
      if (product > 0.0f) scores[k] += product;  // and not what is no number
    }
}

template <int kKeys>
void heads_of(const float* keys, const float* queries, int heads, int dim, float* scores) {
  for (int k = 0; k < kKeys; ++k) scores[k] = 0.0f;
  int h = 0;
  for (; h + 4 <= heads; h += 4) some<kKeys, 4>(keys, queries + h * dim, dim, scores);
  for (; h < heads; ++h) some<kKeys, 1>(keys, queries + h * dim, dim, scores);
}

}  // namespace

void score_blocks(const float* keys, int count, const float* queries, int heads, int dim,
                  float* scores) {
  int k = 0;
  for (; k + 2 <= count; k += 2) heads_of<2>(keys + k * dim, queries, heads, dim, scores + k);
  if (k < count) heads_of<1>(keys + k * dim, queries, heads, dim, scores + k);
}

}  // namespace strata::STRATA_ISA
