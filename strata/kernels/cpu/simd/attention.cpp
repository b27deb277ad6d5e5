// Attention of a tile of queries over one segment of paged keys.
//
// A score is one chain of multiply-adds over head_dim, ascending; a weighted sum is
// one chain over the segment's keys, ascending. Every path below (straight from the
// pages or through a widened tile, any number of rows at once) runs those two chains,
// so a query's bits do not depend on the path.
#include <cmath>

#include "chains.h"
#include "floats.h"
#include "row_arithmetic.h"

namespace strata::STRATA_ISA {

namespace {

constexpr int kTileVectors = kKeyTile / kLanes;
constexpr int kMostVectors = kMaxHeadDim / kLanes;
constexpr int kMostGroups = kMaxHeadDim / kScaled;
// Up to here a tile of queries reads numbers straight from the pages; above, widening
// them once for all rows is cheaper.
constexpr int kDirectRows = 8;

template <class T>
void widen(const T* from, int n, float* out) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) store(out + i, load(from + i));
  if (i < n) {
    T rest[kLanes] = {};
    std::memcpy(rest, from + i, (n - i) * sizeof(T));
    store_part(out + i, load(rest), n - i);
  }
}

// The numbers of pages as their C++ type T: uint16_t (halves), Bf16 or int8_t.
template <class T>
constexpr bool kScaledType = sizeof(T) == 1;

// Calls each(unit, slot, at, n) for the keys [first, last): n of them from the page's `slot` on,
// which are at [at, at + n) of the range.
template <class Each>
void by_page(const Keys& keys, const uint8_t* pages, size_t page, int first, int last, Each each) {
  for (int key = first; key < last;) {
    const int slot = key % keys.block;
    const int n = keys.block - slot < last - key ? keys.block - slot : last - key;
    each(pages + keys.pages[key / keys.block] * page, slot, key - first, n);
    key += n;
  }
}

template <class T>
const T* numbers(const uint8_t* unit) { return reinterpret_cast<const T*>(unit); }
const Bf16* scales(const Keys& keys, const uint8_t* unit, int together) {
  return numbers<Bf16>(unit + keys.form.scales(together));
}

void scale_by(float* x, const float* factors, int n) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) store(x + i, mul(load(x + i), load(factors + i)));
  if (i < n) store_part(x + i, mul(load_part(x + i, n - i), load_part(factors + i, n - i)), n - i);
}

// Keys [first, last) -> tile[head_dim, kKeyTile].
template <class T>
void widen_keys(const Keys& keys, int first, int last, float* tile) {
  by_page(keys, keys.k, keys.k_page, first, last,
          [&](const uint8_t* unit, int slot, int at, int n) {
    const T* from = numbers<T>(unit) + slot;
    const Bf16* scale = scales(keys, unit, keys.k_step) + slot;
    float factors[kKeyTile];
    for (int d = 0; d < keys.form.dim; ++d) {
      float* into = tile + d * kKeyTile + at;
      widen(from + static_cast<size_t>(d) * keys.k_step, n, into);
      if constexpr (kScaledType<T>) {
        if (d % kScaled == 0)
          widen(scale + static_cast<size_t>(d / kScaled) * keys.k_step, n, factors);
        scale_by(into, factors, n);
      }
    }
  });
}

// Values of [first, last) -> tile[key, stride], zero beyond head_dim.
template <class T>
void widen_values(const Keys& keys, int first, int last, int stride, float* tile) {
  const int dim = keys.form.dim, groups = keys.form.groups();
  by_page(keys, keys.v, keys.v_page, first, last,
          [&](const uint8_t* unit, int slot, int at, int n) {
    const T* from = numbers<T>(unit) + static_cast<size_t>(slot) * dim;
    const Bf16* scale = scales(keys, unit, keys.block) + static_cast<size_t>(slot) * groups;
    for (int key = 0; key < n; ++key) {
      float* row = tile + static_cast<size_t>(at + key) * stride;
      widen(from + static_cast<size_t>(key) * dim, dim, row);
      for (int d = dim; d < stride; ++d) row[d] = 0.0f;
      if constexpr (kScaledType<T>) {
        float factors[kMostGroups];
        widen(scale + static_cast<size_t>(key) * groups, groups, factors);
        for (int d = 0; d < stride; d += kLanes)
          store(row + d, mul(load(row + d), splat(factors[d / kScaled])));
      }
    }
  });
}

// Scores of whole vectors of keys from `first` on, straight from the pages.
template <class T>
void score_direct(const Keys& keys, const Queries& queries, int first, int vectors, float* scores) {
  const int dim = keys.form.dim;
  const T* column[kTileVectors];
  const uint8_t* unit[kTileVectors];
  for (int j = 0; j < vectors; ++j) {
    const int key = first + j * kLanes;
    unit[j] = keys.k + keys.pages[key / keys.block] * keys.k_page;
    column[j] = numbers<T>(unit[j]) + key % keys.block;
  }
  const size_t step = static_cast<size_t>(keys.k_step);
  if constexpr (!kScaledType<T>) {
    product<false>(queries.q, dim, PlainColumns<T>{column, step}, dim, scores, kSegment,
                   queries.rows, vectors);
    return;
  } else {
    for (int g = 0; g * kScaled < dim; ++g) {
      float factors[kKeyTile];
      for (int j = 0; j < vectors; ++j) {
        const int slot = (first + j * kLanes) % keys.block;
        store(factors + j * kLanes, load(scales(keys, unit[j], keys.k_step) + g * step + slot));
      }
      const int depth = dim - g * kScaled < kScaled ? dim - g * kScaled : kScaled;
      const ScaledKeys columns{column, step, factors};
      (g ? product<true, ScaledKeys> : product<false, ScaledKeys>)(
          queries.q + g * kScaled, dim, columns, depth, scores, kSegment, queries.rows, vectors);
      for (int j = 0; j < vectors; ++j) column[j] += kScaled * step;
    }
  }
}

// Scores of the keys [first, last), at most kKeyTile of them, -> scores[rows, kSegment].
template <class T>
void score(const Keys& keys, const Queries& queries, int first, int last, bool direct, float* tile,
           float* scores) {
  const int dim = keys.form.dim, vectors = (last - first + kLanes - 1) / kLanes;
  if (direct) return score_direct<T>(keys, queries, first, vectors, scores);
  widen_keys<T>(keys, first, last, tile);
  const float* column[kTileVectors];
  for (int j = 0; j < vectors; ++j) column[j] = tile + j * kLanes;
  product<false>(queries.q, dim, PlainColumns<float>{column, kKeyTile}, dim, scores, kSegment,
                 queries.rows, vectors);
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

// out += weights * values of the keys [first, last), straight from the pages.
template <class T>
void weigh_direct(const Keys& keys, int rows, int first, int last, const float* weights,
                  float* out) {
  const int dim = keys.form.dim, vectors = dim / kLanes, groups = keys.form.groups();
  by_page(keys, keys.v, keys.v_page, first, last,
          [&](const uint8_t* unit, int slot, int at, int n) {
    const size_t step = static_cast<size_t>(dim);
    const T* from = numbers<T>(unit) + slot * step;
    if constexpr (kScaledType<T>) {
      float factors[kKeyTile * kMostGroups];
      widen(scales(keys, unit, keys.block) + static_cast<size_t>(slot) * groups, n * groups,
            factors);
      product<true>(weights + at, kSegment, ScaledValues{from, step, factors, groups}, n, out, dim,
                    rows, vectors);
    } else {
      const T* column[kMostVectors];
      for (int j = 0; j < vectors; ++j) column[j] = from + j * kLanes;
      product<true>(weights + at, kSegment, PlainColumns<T>{column, step}, n, out, dim, rows,
                    vectors);
    }
  });
}

// out += weights * values of the keys [first, last), at most kKeyTile of them.
template <class T>
void weigh(const Keys& keys, int rows, int first, int last, bool direct, float* tile,
           const float* weights, float* out) {
  if (direct) return weigh_direct<T>(keys, rows, first, last, weights, out);
  const int stride = sums_stride(keys.form.dim), vectors = stride / kLanes;
  widen_values<T>(keys, first, last, stride, tile);
  const float* column[kMostVectors];
  for (int j = 0; j < vectors; ++j) column[j] = tile + j * kLanes;
  product<true>(weights, kSegment, PlainColumns<float>{column, static_cast<size_t>(stride)},
                last - first, out, stride, rows, vectors);
}

template <class T>
void attend_to(const Keys& keys, const Queries& queries, int segment, int last, float* scratch,
               Sums part) {
  int start = segment * kSegment;
  int end = last < start + kSegment ? last : start + kSegment;
  int rows = queries.rows;
  int stride = sums_stride(keys.form.dim);
  float* scores = scratch;
  float* tile = scratch + static_cast<size_t>(rows) * kSegment;
  bool direct = rows <= kDirectRows && keys.block % kLanes == 0 && keys.form.dim == stride;
  for (int key = start; key < end; key += kKeyTile) {
    int stop = key + kKeyTile < end ? key + kKeyTile : end;
    score<T>(keys, queries, key, stop, direct, tile, scores + (key - start));
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
    weigh<T>(keys, rows, key, stop, direct, tile, scores + (key - start), part.out);
  }
}

}  // namespace

void attend(const Keys& keys, const Queries& queries, int segment, int last, float* scratch,
            Sums part) {
  switch (keys.form.type) {
    case KvType::f16: return attend_to<uint16_t>(keys, queries, segment, last, scratch, part);
    case KvType::bf16: return attend_to<Bf16>(keys, queries, segment, last, scratch, part);
    case KvType::q8: return attend_to<int8_t>(keys, queries, segment, last, scratch, part);
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
