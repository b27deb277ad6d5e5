// Attention of a tile of queries over one segment of paged keys.
//
// A score is one chain of multiply-adds over head_dim, ascending; a weighted sum is
// one chain over the segment's keys, ascending. Where numbers share scales, a score is such a
// chain for each of their groups, and one over the groups; in a weighted sum the weights are
// multiplied by the values' scales. Every path below (straight from the pages or through a widened
// tile, any number of rows at once) runs those chains, so a query's bits do not depend on the path.
#include <cmath>

#include "chains.h"
#include "floats.h"
#include "row_arithmetic.h"

namespace strata::STRATA_ISA {

namespace {

constexpr int kTileVectors = kKeyTile / kLanes;
constexpr int kMostVectors = kMaxHeadDim / kLanes;
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
template <class T>
const T* key_at(const Keys& keys, int key) {
  return numbers<T>(keys.k + keys.pages[key / keys.block] * keys.k_page) + key % keys.block;
}
template <class T>
const T* value_at(const Keys& keys, int key) {
  return numbers<T>(keys.v + keys.pages[key / keys.block] * keys.v_page) +
         static_cast<size_t>(key % keys.block) * keys.form.dim;
}

// The scales of group g of keys (or values) [first, last) -> factors [kKeyTile], then zeros.
// `together` of a unit.
void tile_scales(const Keys& keys, const uint8_t* pages, size_t page, int together, int g,
                 int first, int last, float* factors) {
  for (int i = last - first; i < kKeyTile; ++i) factors[i] = 0.0f;
  by_page(keys, pages, page, first, last, [&](const uint8_t* unit, int slot, int at, int n) {
    const Bf16* scales = numbers<Bf16>(unit + keys.form.scales(together));
    widen(scales + static_cast<size_t>(g) * together + slot, n, factors + at);
  });
}

// Keys [first, last) -> tile[head_dim, kKeyTile], without their scales.
template <class T>
void widen_keys(const Keys& keys, int first, int last, float* tile) {
  by_page(keys, keys.k, keys.k_page, first, last,
          [&](const uint8_t* unit, int slot, int at, int n) {
    const T* from = numbers<T>(unit) + slot;
    for (int d = 0; d < keys.form.dim; ++d)
      widen(from + static_cast<size_t>(d) * keys.k_step, n, tile + d * kKeyTile + at);
  });
}

// Values of [first, last) -> tile[key, stride], without their scales; zero beyond head_dim.
template <class T>
void widen_values(const Keys& keys, int first, int last, int stride, float* tile) {
  const int dim = keys.form.dim;
  by_page(keys, keys.v, keys.v_page, first, last,
          [&](const uint8_t* unit, int slot, int at, int n) {
    const T* from = numbers<T>(unit) + static_cast<size_t>(slot) * dim;
    for (int key = 0; key < n; ++key, from += dim) {
      float* row = tile + static_cast<size_t>(at + key) * stride;
      widen(from, dim, row);
      for (int d = dim; d < stride; ++d) row[d] = 0.0f;
    }
  });
}

// Scores of the keys from `first` on, whose numbers are in columns [head_dim, vectors].
template <bool kScales, class T>
void score_columns(const Keys& keys, const Queries& queries, const T** vector, const T** ahead,
                   size_t step, int first, int last, float* scores) {
  const int dim = keys.form.dim, rows = queries.rows;
  const int vectors = (last - first + kLanes - 1) / kLanes;
  if constexpr (!kScales) {
    product<Into::set>(queries.q, dim, Columns<T>{vector, step, ahead}, dim, scores, kSegment,
                       rows, vectors);
    return;
  }
  for (int r = 0; r < rows; ++r)
    for (int j = 0; j < vectors; ++j)
      store(scores + static_cast<size_t>(r) * kSegment + j * kLanes, zero());
  for (int d = 0; d < dim; d += kScaled) {
    float factors[kKeyTile];
    tile_scales(keys, keys.k, keys.k_page, keys.k_step, d / kScaled, first, last, factors);
    product<Into::add_scaled>(queries.q + d, dim, Columns<T>{vector, step, ahead},
                              dim - d < kScaled ? dim - d : kScaled, scores, kSegment, rows,
                              vectors, factors);
    for (int j = 0; j < vectors; ++j) vector[j] += kScaled * step;
    for (int j = 0; ahead && j < vectors; ++j) ahead[j] += kScaled * step;
  }
}

// Scores of the keys [first, last), at most kKeyTile of them, -> scores[rows, kSegment].
template <class T>
void score(const Keys& keys, const Queries& queries, int first, int last, int start, int end,
           bool direct, float* tile, float* scores) {
  if (direct) {
    const T *vector[kTileVectors], *ahead[kTileVectors];
    for (int j = 0; first + j * kLanes < last; ++j) {
      const int next = first + j * kLanes + kKeyTile, value = start + j * kLanes;
      vector[j] = key_at<T>(keys, first + j * kLanes);
      // Behind the last keys come the first values.
      ahead[j] = next < end ? key_at<T>(keys, next) : value_at<T>(keys, value < end ? value : start);
    }
    score_columns<kScaledType<T>>(keys, queries, vector, ahead, keys.k_step, first, last, scores);
    return;
  }
  widen_keys<T>(keys, first, last, tile);
  const float* vector[kTileVectors];
  for (int j = 0; j < kTileVectors; ++j) vector[j] = tile + j * kLanes;
  const float** ahead = nullptr;
  score_columns<kScaledType<T>>(keys, queries, vector, ahead, kKeyTile, first, last, scores);
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

// out += weights * values of the keys [first, last) in [begin, end) of head_dim: from the pages, or
// out of a widened tile [key, stride]. `weights` are `step` floats from row to row; the segment's
// keys end at `stop`.
template <class T>
void weigh_part(const Keys& keys, int rows, int first, int last, int stop, int begin, int end,
                const float* tile, const float* weights, size_t step, float* out) {
  const int stride = sums_stride(keys.form.dim), vectors = (end - begin + kLanes - 1) / kLanes;
  if (tile) {
    const float* vector[kMostVectors];
    for (int j = 0; j < vectors; ++j) vector[j] = tile + begin + j * kLanes;
    product<Into::add>(weights, step, Columns<float>{vector, static_cast<size_t>(stride)},
                       last - first, out + begin, stride, rows, vectors);
    return;
  }
  by_page(keys, keys.v, keys.v_page, first, last,
          [&](const uint8_t*, int, int at, int n) {
    const int key = first + at;
    const T* from = value_at<T>(keys, key) + begin;
    const T* next = value_at<T>(keys, key + kKeyTile < stop ? key + kKeyTile : key) + begin;
    const T *vector[kMostVectors], *ahead[kMostVectors];
    for (int j = 0; j < vectors; ++j) vector[j] = from + j * kLanes, ahead[j] = next + j * kLanes;
    product<Into::add>(weights + at, step, Columns<T>{vector, static_cast<size_t>(stride), ahead},
                       n, out + begin, stride, rows, vectors);
  });
}

// out += weights * values of the keys [first, last), at most kKeyTile of them. `scaled` has room
// for [rows, kKeyTile].
template <class T>
void weigh(const Keys& keys, int rows, int first, int last, int stop, bool direct, float* tile,
           float* scaled, const float* weights, float* out) {
  const int dim = keys.form.dim;
  if (!direct) widen_values<T>(keys, first, last, sums_stride(dim), tile);
  if (direct) tile = nullptr;
  if constexpr (!kScaledType<T>)
    return weigh_part<T>(keys, rows, first, last, stop, 0, dim, tile, weights, kSegment, out);
  for (int d = 0; d < dim; d += kScaled) {
    float factors[kKeyTile];
    tile_scales(keys, keys.v, keys.v_page, keys.block, d / kScaled, first, last, factors);
    for (int r = 0; r < rows; ++r)
      for (int i = 0; i < last - first; i += kLanes)
        store(scaled + r * kKeyTile + i,
              mul(load(weights + static_cast<size_t>(r) * kSegment + i), load(factors + i)));
    weigh_part<T>(keys, rows, first, last, stop, d, dim - d < kScaled ? dim : d + kScaled, tile,
                  scaled, kKeyTile, out);
  }
}

template <class T>
void attend_to(const Keys& keys, const Queries& queries, int segment, int last, float* scratch,
               Sums part) {
  int start = segment * kSegment;
  int end = last < start + kSegment ? last : start + kSegment;
  int rows = queries.rows;
  int stride = sums_stride(keys.form.dim);
  float* scores = scratch;
  float* scaled = scratch + static_cast<size_t>(rows) * kSegment;
  float* tile = scaled + static_cast<size_t>(rows) * kKeyTile;
  bool direct = rows <= kDirectRows && keys.block % kLanes == 0 && keys.form.dim == stride;
  for (int key = start; key < end; key += kKeyTile) {
    int stop = key + kKeyTile < end ? key + kKeyTile : end;
    score<T>(keys, queries, key, stop, start, end, direct, tile, scores + (key - start));
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
    weigh<T>(keys, rows, key, stop, end, direct, tile, scaled, scores + (key - start), part.out);
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
