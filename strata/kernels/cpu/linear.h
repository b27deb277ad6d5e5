// The seam between the quantised matrix product and the layers built on it.
//
// A weight matrix [n, k] keeps its GGUF quantisation and is repacked, without loss,
// into tiles of `tile_rows()` output rows, interleaved so that one vector holds four
// k of every row of the tile. Activations are quantised once per row, then a matrix
// product is a number of independent tasks that any threads may run in any order.
//
// Quantised activations keep 16 bits, as two bytes: every instruction set multiplies
// bytes fastest, and one pass over the weights serves both. With 8 bits alone every
// greedy choice within some 0.3 of a tie was a toss-up (docs/kernels.md).
//
// Invariant: an element of y takes the same floating-point operations in the same
// order for every number of rows, every task split and every thread count. On the
// quantised formats it is even the same on every instruction set.
//
// Not here: threads, memory, Python. All functions use the instruction set in use
// (isa.h); `tiles` must have been packed under it.
#pragma once
#include <cstddef>
#include <cstdint>

namespace strata {

// GGML type numbers; from 1000 on our own.
enum Format : int {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q5_0 = 6,
  Q5_1 = 7,
  Q8_0 = 8,
  Q2_K = 10,
  Q3_K = 11,
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  IQ2_XXS = 16,
  IQ2_XS = 17,
  IQ3_XXS = 18,
  IQ1_S = 19,
  IQ4_NL = 20,
  IQ3_S = 21,
  IQ2_S = 22,
  IQ4_XS = 23,
  IQ1_M = 29,
  BF16 = 30,
  TQ1_0 = 34,
  TQ2_0 = 35,
  MXFP4 = 39,
  NVFP4 = 40,
  F8 = 1000,
  I4 = 1001,
  E4M3 = 1002,  // without a scale; of tables
};

bool is_supported(int format);
int block_size(int format);             // weights in a block: 1 to 256; k is a multiple of it
size_t row_bytes(int format, int k);    // bytes of one row in the GGUF file

// y[n] = W[n, k] x[k] + bias[n]; bias may be null. Owns nothing.
struct Linear {
  int format;
  int n;
  int k;
  const uint8_t* tiles;  // packed, 64-byte aligned
  const float* bias;
};

// ---- weights
int tile_rows();                                  // output rows of a tile: 8 or 16
size_t packed_bytes(int format, int n, int k);    // a multiple of 64
// gguf_rows: n rows of row_bytes(format, k), consecutive, any alignment.
void pack(int format, const void* gguf_rows, int n, int k, uint8_t* tiles, int threads);
// One row as it is in the file -> k floats, bit-equal to the format's definition.
void dequantise_row(int format, const void* gguf_row, int k, float* out);

// ---- activations
enum ActKind { ACT_F32, ACT_Q8_32, ACT_Q8_256 };
ActKind act_kind(int format);              // what a product with this format takes
size_t act_bytes(ActKind kind, int k);     // bytes of one row, a multiple of 64
// x: k floats, any alignment. act_row: 64-byte aligned.
void quantise_row(ActKind kind, const float* x, int k, void* act_row);

// ---- product
int matmul_tasks(const Linear& linear, int rows);
// act: quantised rows, act_bytes apart, 64-byte aligned; row r of y is the product with row
// order[r], or r where order is null. y: row-major, `ldy` floats from row to row. A task writes
// elements of y that no other task writes.
void matmul_task(const Linear& linear, const void* act, const int32_t* order, int rows, float* y,
                 int ldy, int task);

}  // namespace strata
