// Scores of an index query with the keys of blocks, and the blocks with the highest ones.
//
// A dot product is one chain of multiply-adds over vectors of dim, ascending, then its lanes;
// heads are added in order. Neither depends on how many keys or heads are taken at once.
#include <algorithm>
#include <cstring>

#include "floats.h"
#include "row_arithmetic.h"

namespace strata::STRATA_ISA {

namespace {

constexpr int kKeys = 4;                          // taken at once
constexpr int kMostHeads = kRegisters == 32 ? 4 : 2;  // as many sums as fit the registers

// scores[key] += sum of the heads' positive products.
template <int kHeads>
void four_keys(const float* keys, const float* queries, int dim, float* scores) {
  Lanes sums[kHeads][kKeys];
  for (int h = 0; h < kHeads; ++h)
    for (int k = 0; k < kKeys; ++k) sums[h][k] = zero();
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
      for (int k = 0; k < kKeys; ++k) sums[h][k] = fma(q, key[k], sums[h][k]);
    }
  }
  for (int h = 0; h < kHeads; ++h) {
    float products[kKeys];
    four_sums(sums[h], products);
    // What is no number counts as nothing.
    for (int k = 0; k < kKeys; ++k) scores[k] += products[k] > 0.0f ? products[k] : 0.0f;
  }
}

void one_key(const float* key, const float* query, int dim, float* score) {
  Lanes total = zero();
  for (int i = 0; i < dim; i += kLanes) {
    const int n = dim - i < kLanes ? dim - i : kLanes;
    total = n == kLanes ? fma(load(query + i), load(key + i), total)
                        : fma(load_part(query + i, n), load_part(key + i, n), total);
  }
  const float product = sum(total);
  if (product > 0.0f) *score += product;
}

int32_t bits_of(float x) {
  int32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

int count_from(const float* x, int count, int32_t bound) {
  int found = 0;
  for (int i = 0; i < count; ++i) found += bits_of(x[i]) >= bound;
  return found;
}

}  // namespace

void score_blocks(const float* keys, int count, const float* queries, int heads, int dim,
                  float* scores) {
  for (int k = 0; k < count; ++k) scores[k] = 0.0f;
  int k = 0;
  for (; k + kKeys <= count; k += kKeys) {
    int h = 0;
    for (; h + kMostHeads <= heads; h += kMostHeads)
      four_keys<kMostHeads>(keys + k * dim, queries + h * dim, dim, scores + k);
    for (; h < heads; ++h) four_keys<1>(keys + k * dim, queries + h * dim, dim, scores + k);
  }
  for (; k < count; ++k)
    for (int h = 0; h < heads; ++h)
      one_key(keys + k * dim, queries + h * dim, dim, scores + k);
}

// Halves the interval of the bound, whose bits are ordered as its values are: a pass over x is
// a few hundred cycles, without a branch that could be mispredicted.
void largest(const float* x, int count, int most, int32_t* places) {
  int32_t low = bits_of(x[0]), high = low;
  for (int i = 1; i < count; ++i) {
    low = std::min(low, bits_of(x[i]));
    high = std::max(high, bits_of(x[i]));
  }
  int found = count;  // from `low` on: enough of them
  while (low < high && found != most) {
    const int32_t middle = low + (high - low) / 2 + 1;
    const int here = count_from(x, count, middle);
    if (here < most) {
      high = middle - 1;
    } else {
      low = middle;
      found = here;
    }
  }
  // How many of those at the bound are taken.
  int equal = found == most ? most : most - count_from(x, count, low + 1);
  for (int i = 0, taken = 0; taken < most; ++i) {
    const bool at = bits_of(x[i]) == low;
    places[taken] = i;
    taken += (bits_of(x[i]) > low) | (at & (equal > 0));
    equal -= at;
  }
}

}  // namespace strata::STRATA_ISA
