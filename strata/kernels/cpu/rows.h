// The arithmetic of the layers that is not a matrix product: one table of functions
// per instruction set.
//
// Each function works on one token's row or on one tile of queries, knows nothing of
// threads, and gives the same bits for a row whatever stands beside it.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kv.h"
#include "scan.h"

namespace strata {

// Keys are scored in segments on absolute boundaries: segment i holds the keys
// [i * kSegment, (i + 1) * kSegment) of a sequence. A segment is summed by itself and
// segments are merged in ascending order, whoever computed them.
inline constexpr int kSegment = 256;
// Keys that are widened to float together.
inline constexpr int kKeyTile = 64;
inline constexpr int kMaxHeadDim = 256;

// Keys and values of one key head of one sequence, in its pages. The tokens of a page are one unit
// (kv.h), or, where an indexer chooses blocks of them, each block is, so that it can be copied
// without its neighbours (gathered.h).
struct Keys {
  const uint8_t* k;      // page 0
  const uint8_t* v;
  size_t k_page;         // bytes from page to page
  size_t v_page;
  const int32_t* pages;  // page of each block of the sequence
  int block;             // keys in a page
  int k_step;            // numbers from one component of a unit's keys to the next
  KvForm form;
};

// Queries of one tile: `rows` of them, scaled by scale * log2(e).
struct Queries {
  const float* q;   // [rows, head_dim]
  const int* seen;  // [rows] keys that the row may see, counted from the sequence's start
  int rows;
};

// Softmax-weighted sums that are not yet divided: out [rows, sums_stride], with the
// largest score `top` and the sum of weights `total` of each row.
struct Sums {
  float* out;
  float* top;
  float* total;
};

struct RowKernels {
  // out = x / sqrt(mean(x^2) + eps) * weight; out may be x.
  void (*rms_norm)(const float* x, const float* weight, float eps, int n, float* out);
  // x += y
  void (*add)(float* x, const float* y, int n);
  // x += factor * y
  void (*add_scaled)(float* x, const float* y, float factor, int n);
  // out = mean over the streams of sigmoid(gate) * rms_norm(stream); x, weight and gate
  // [streams, n].
  void (*mix)(const float* x, const float* weight, float eps, const float* gate, int streams,
              int n, float* out);
  // x *= sigmoid(gate)
  void (*sigmoid_mul)(float* x, const float* gate, int n);
  // x *= gate * sigmoid(gate)
  void (*swish_mul)(float* x, const float* gate, int n);
  float (*dot)(const float* x, const float* y, int n);
  // x *= scale / sqrt(sum(x^2) + least)
  void (*unit)(float* x, float least, float scale, int n);
  // gate = gate * sigmoid(gate) * up
  void (*silu_mul)(float* gate, const float* up, int n);
  // Rotates the pairs (i, i + pairs) of a head in place.
  void (*rotate)(float* head, const float* cosines, const float* sines, int pairs);
  void (*multiply)(float* x, float factor, int n);
  // x as numbers of pages, `step` of them from one to the next, and, in q8, scales.
  void (*narrow)(KvType type, const float* x, int n, uint8_t* out, size_t step, uint8_t* scales,
                 size_t scale_step);

  // x [count], `stride` apart, becomes its convolution; the window moves on. `past` has room
  // for the window's rows of n floats.
  void (*convolve)(const Convolution&, float* x, size_t stride, int count, float* past);
  // At least one token. `panel` has room for dim * kPanel floats.
  void (*scan)(const Scan&, float* panel);

  // scores [count] = sum over the heads of max(query . key, 0); keys [count, dim], queries
  // [heads, dim].
  void (*score_blocks)(const float* keys, int count, const float* queries, int heads, int dim,
                       float* scores);
  // Where the `most` largest of x [count] are, none of them negative: ascending; of equals the
  // first ones.
  void (*largest)(const float* x, int count, int most, int32_t* places);
  // One segment for a tile of queries: the keys of `segment` below `last`.
  void (*attend)(const Keys&, const Queries&, int segment, int last, float* scratch, Sums part);
  // into = into (+) part, for the rows that see any key of the part's segment.
  void (*merge)(Sums into, Sums part, const Queries&, int segment, int head_dim);
  // out / total -> y: `heads` consecutive heads of a token, `ldy` floats from token to token.
  void (*finish)(Sums sums, int rows, int heads, int head_dim, float* y, size_t ldy);
};

// Floats from one row of Sums::out to the next: a multiple of every register width.
constexpr int sums_stride(int head_dim) { return (head_dim + 15) / 16 * 16; }
// Floats of scratch that `attend` needs.
constexpr size_t attend_scratch(int rows, int head_dim) {
  return static_cast<size_t>(rows) * (kSegment + kKeyTile) +
         static_cast<size_t>(kKeyTile) * sums_stride(head_dim);
}

// The table of the instruction set in use (isa.h).
const RowKernels& row_kernels();

}  // namespace strata
