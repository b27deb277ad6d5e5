// The functions that fill RowKernels, declared for the files of one instruction set.
#pragma once
#include "rows.h"

namespace strata::STRATA_ISA {

void convolve(const Convolution& c, float* x, size_t stride, int count, float* past);
void scan(const Scan& scan, float* panel);
void score_blocks(const float* keys, int count, const float* queries, int heads, int dim,
                  float* scores);
void largest(const float* x, int count, int most, int32_t* places);
void narrow(KvType type, const float* x, int n, uint8_t* out, size_t step, uint8_t* scales,
            size_t scale_step);
void attend(const Keys& keys, const Queries& queries, int segment, int last, float* scratch,
            Sums part);
void merge(Sums into, Sums part, const Queries& queries, int segment, int head_dim);
void finish(Sums sums, int rows, int heads, int head_dim, float* y, size_t ldy);

}  // namespace strata::STRATA_ISA
