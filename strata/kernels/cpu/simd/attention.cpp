// Attention of a tile of queries over one segment of paged keys.
//
// A score is one chain of multiply-adds over head_dim, ascending; a weighted sum is
// one chain over the segment's keys, ascending. Every path below (straight from the
// pages or through a widened tile, any number of rows at once) runs those two chains,
// so a query's bits do not depend on the path.
#include <cmath>

#include "floats.h"
#include "row_arithmetic.h"

namespace strata::STRATA_ISA {

namespace {

constexpr int kRowsAtOnce = 6;
constexpr int kVectorsAtOnce = kRegisters == 32 ? 4 : 2;
constexpr int kTileVectors = kKeyTile / kLanes;
// Up to here a tile of queries reads halves straight from the pages; above, widening
// them once for all rows is cheaper.
constexpr int kDirectRows = 8;

// c[rows, kVectors] (+)= a[rows, depth] * b[depth, kVectors], one pointer per vector
// column of b. `ahead`, unless null, are columns that will be asked for next: the pages lie
// apart, and what the processor fetches by itself begins anew in each. One at a time, between
// the sums: many at once would keep the sums waiting.
template <int kRows, int kVectors, bool kAdd, class T>
inline void block_product(const float* a, size_t lda, const T* const* b, size_t ldb, int depth,
                          float* c, size_t ldc, const T* const* ahead) {
  Lanes sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r)
    for (int j = 0; j < kVectors; ++j)
      sums[r][j] = kAdd ? load(c + r * ldc + j * kLanes) : zero();
  for (int i = 0; i < depth; ++i) {
    Lanes column[kVectors];
    for (int j = 0; j < kVectors; ++j) column[j] = load(b[j] + i * ldb);
    if (ahead)
      for (int j = 0; j < kVectors; ++j) __builtin_prefetch(ahead[j] + i * ldb);
    for (int r = 0; r < kRows; ++r) {
      Lanes x = splat(a[r * lda + i]);
      for (int j = 0; j < kVectors; ++j) sums[r][j] = fma(x, column[j], sums[r][j]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int j = 0; j < kVectors; ++j) store(c + r * ldc + j * kLanes, sums[r][j]);
}

template <int kVectors, bool kAdd, class T>
void strip_product(const float* a, size_t lda, const T* const* b, size_t ldb, int depth, float* c,
                   size_t ldc, int rows, const T* const* ahead) {
  int r = 0;
  for (; r + kRowsAtOnce <= rows; r += kRowsAtOnce, ahead = nullptr)
    block_product<kRowsAtOnce, kVectors, kAdd>(a + r * lda, lda, b, ldb, depth, c + r * ldc, ldc,
                                               ahead);
  const float* rest = a + r * lda;
  float* into = c + r * ldc;
  switch (rows - r) {
    case 5: return block_product<5, kVectors, kAdd>(rest, lda, b, ldb, depth, into, ldc, ahead);
    case 4: return block_product<4, kVectors, kAdd>(rest, lda, b, ldb, depth, into, ldc, ahead);
    case 3: return block_product<3, kVectors, kAdd>(rest, lda, b, ldb, depth, into, ldc, ahead);
    case 2: return block_product<2, kVectors, kAdd>(rest, lda, b, ldb, depth, into, ldc, ahead);
    case 1: return block_product<1, kVectors, kAdd>(rest, lda, b, ldb, depth, into, ldc, ahead);
    default: return;
  }
}

template <bool kAdd, class T>
void product(const float* a, size_t lda, const T* const* b, size_t ldb, int depth, float* c,
             size_t ldc, int rows, int vectors, const T* const* ahead = nullptr) {
  int j = 0;
  for (; j + kVectorsAtOnce <= vectors; j += kVectorsAtOnce)
    strip_product<kVectorsAtOnce, kAdd>(a, lda, b + j, ldb, depth, c + j * kLanes, ldc, rows,
                                        ahead ? ahead + j : nullptr);
  if constexpr (kVectorsAtOnce == 4)
    for (; j + 2 <= vectors; j += 2)
      strip_product<2, kAdd>(a, lda, b + j, ldb, depth, c + j * kLanes, ldc, rows,
                             ahead ? ahead + j : nullptr);
  for (; j < vectors; ++j)
    strip_product<1, kAdd>(a, lda, b + j, ldb, depth, c + j * kLanes, ldc, rows,
                           ahead ? ahead + j : nullptr);
}

void widen(const uint16_t* half, int n, float* out) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) store(out + i, load(half + i));
  if (i < n) {
    uint16_t rest[kLanes] = {};
    std::memcpy(rest, half + i, (n - i) * sizeof(uint16_t));
    store_part(out + i, load(rest), n - i);
  }
}

const uint16_t* key_block(const Keys& keys, int key) {
  return keys.k + keys.pages[key / keys.block] * keys.k_page;
}
const uint16_t* value_row(const Keys& keys, int key) {
  return keys.v + keys.pages[key / keys.block] * keys.v_page +
         static_cast<size_t>(key % keys.block) * keys.head_dim;
}

// Keys [first, last) -> tile[head_dim, kKeyTile].
void widen_keys(const Keys& keys, int first, int last, float* tile) {
  for (int key = first; key < last;) {
    int slot = key % keys.block;
    int n = keys.block - slot < last - key ? keys.block - slot : last - key;
    const uint16_t* from = key_block(keys, key) + slot;
    for (int d = 0; d < keys.head_dim; ++d)
      widen(from + static_cast<size_t>(d) * keys.k_step, n, tile + d * kKeyTile + (key - first));
    key += n;
  }
}

// Values of [first, last) -> tile[key, stride], zero beyond head_dim.
void widen_values(const Keys& keys, int first, int last, int stride, float* tile) {
  for (int key = first; key < last; ++key) {
    float* row = tile + static_cast<size_t>(key - first) * stride;
    widen(value_row(keys, key), keys.head_dim, row);
    for (int d = keys.head_dim; d < stride; ++d) row[d] = 0.0f;
  }
}

// Scores of the keys [first, last), at most kKeyTile of them, -> scores[rows, kSegment].
void score(const Keys& keys, const Queries& queries, int first, int last, int start, int end,
           bool direct, float* tile, float* scores) {
  int dim = keys.head_dim;
  int vectors = (last - first + kLanes - 1) / kLanes;
  if (direct) {
    const uint16_t *column[kTileVectors], *ahead[kTileVectors];
    for (int j = 0; j < vectors; ++j) {
      int key = first + j * kLanes;
      column[j] = key_block(keys, key) + key % keys.block;
      // Behind the last keys come the first values.
      const int next = key + kKeyTile;
      ahead[j] = next < end ? key_block(keys, next) + next % keys.block
                            : value_row(keys, start + j * kLanes < end ? start + j * kLanes
                                                                       : start);
    }
    product<false>(queries.q, dim, column, keys.k_step, dim, scores, kSegment, queries.rows,
                   vectors, ahead);
    return;
  }
  widen_keys(keys, first, last, tile);
  const float* column[kTileVectors];
  for (int j = 0; j < vectors; ++j) column[j] = tile + j * kLanes;
  product<false>(queries.q, dim, column, kKeyTile, dim, scores, kSegment, queries.rows, vectors);
}

// Scores of one row -> weights 2^(score - top), 0 from `seen` up to `last`.
void soften(float* scores, int seen, int last, float* top, float* total) {
  *top = -INFINITY;
  *total = 0.0f;
  int full = seen / kLanes * kLanes, rest = seen - full;
  Lanes best = splat(-INFINITY);
  for (int i = 0; i < full; i += kLanes) best = max(best, load(scores + i));
  if (rest > 0) best = max(best, keep(load(scores + full), rest, -INFINITY));
  if (seen > 0) *top = largest(best);
  Lanes shift = splat(*top), mass = zero();
  int i = 0;
  for (; i < full; i += kLanes) {
    Lanes p = exp2(sub(load(scores + i), shift));
    store(scores + i, p);
    mass = add(mass, p);
  }
  if (rest > 0) {
    Lanes p = keep(exp2(sub(load(scores + full), shift)), rest, 0.0f);
    store(scores + full, p);
    mass = add(mass, p);
    i += kLanes;
  }
  if (seen > 0) *total = sum(mass);
  for (; i < last; i += kLanes) store(scores + i, zero());
}

// out += weights * values of the keys [first, last), at most kKeyTile of them.
void weigh(const Keys& keys, int rows, int first, int last, int end, bool direct, float* tile,
           const float* weights, float* out) {
  int stride = sums_stride(keys.head_dim);
  int vectors = stride / kLanes;
  constexpr int kMost = kMaxHeadDim / kLanes;
  if (direct) {
    for (int key = first; key < last;) {
      int slot = key % keys.block;
      int n = keys.block - slot < last - key ? keys.block - slot : last - key;
      const uint16_t* from = value_row(keys, key);
      const uint16_t* next = value_row(keys, key + kKeyTile < end ? key + kKeyTile : key);
      const uint16_t *column[kMost], *ahead[kMost];
      for (int j = 0; j < vectors; ++j) column[j] = from + j * kLanes, ahead[j] = next + j * kLanes;
      product<true>(weights + (key - first), kSegment, column, keys.head_dim, n, out, stride, rows,
                    vectors, ahead);
      key += n;
    }
    return;
  }
  widen_values(keys, first, last, stride, tile);
  const float* column[kMost];
  for (int j = 0; j < vectors; ++j) column[j] = tile + j * kLanes;
  product<true>(weights, kSegment, column, stride, last - first, out, stride, rows, vectors);
}

}  // namespace

void attend(const Keys& keys, const Queries& queries, int segment, int last, float* scratch,
            Sums part) {
  int start = segment * kSegment;
  int end = last < start + kSegment ? last : start + kSegment;
  int rows = queries.rows;
  int stride = sums_stride(keys.head_dim);
  float* scores = scratch;
  float* tile = scratch + static_cast<size_t>(rows) * kSegment;
  bool direct = rows <= kDirectRows && keys.block % kLanes == 0 && keys.head_dim == stride;
  for (int key = start; key < end; key += kKeyTile) {
    int stop = key + kKeyTile < end ? key + kKeyTile : end;
    score(keys, queries, key, stop, start, end, direct, tile, scores + (key - start));
  }
  for (int r = 0; r < rows; ++r) {
    int seen = queries.seen[r] - start;
    seen = seen < 0 ? 0 : seen > kSegment ? kSegment : seen;
    soften(scores + static_cast<size_t>(r) * kSegment, seen, end - start, part.top + r,
           part.total + r);
  }
  for (int i = 0; i < rows * stride; i += kLanes) store(part.out + i, zero());
  for (int key = start; key < end; key += kKeyTile) {
    int stop = key + kKeyTile < end ? key + kKeyTile : end;
    weigh(keys, rows, key, stop, end, direct, tile, scores + (key - start), part.out);
  }
}

void merge(Sums into, Sums part, const Queries& queries, int segment, int head_dim) {
  int stride = sums_stride(head_dim);
  for (int r = 0; r < queries.rows; ++r) {
    if (queries.seen[r] <= segment * kSegment) continue;
    float top = into.top[r] > part.top[r] ? into.top[r] : part.top[r];
    Lanes old_scale = exp2(splat(into.top[r] - top));
    Lanes new_scale = exp2(splat(part.top[r] - top));
    float* a = into.out + static_cast<size_t>(r) * stride;
    const float* b = part.out + static_cast<size_t>(r) * stride;
    for (int d = 0; d < stride; d += kLanes)
      store(a + d, fma(load(b + d), new_scale, mul(load(a + d), old_scale)));
    float pair[2][kLanes];
    store(pair[0], mul(splat(into.total[r]), old_scale));
    store(pair[1], mul(splat(part.total[r]), new_scale));
    into.total[r] = pair[0][0] + pair[1][0];
    into.top[r] = top;
  }
}

void finish(Sums sums, int rows, int heads, int head_dim, float* y, size_t ldy) {
  int stride = sums_stride(head_dim);
  for (int r = 0; r < rows; ++r) {
    Lanes factor = splat(1.0f / sums.total[r]);
    const float* from = sums.out + static_cast<size_t>(r) * stride;
    float* to = y + r / heads * ldy + r % heads * head_dim;
    int d = 0;
    for (; d + kLanes <= head_dim; d += kLanes) store(to + d, mul(load(from + d), factor));
    if (d < head_dim) store_part(to + d, mul(load(from + d), factor), head_dim - d);
  }
}

}  // namespace strata::STRATA_ISA
