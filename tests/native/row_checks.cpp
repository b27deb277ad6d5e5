#include "row_checks.h"

#include <initializer_list>

#include "random.h"
#include "rows.h"
#include "say.h"

using namespace strata;

namespace {

constexpr int kMost = 1 << 16;
float a[kMost], b[kMost], c[kMost], expected[kMost], got[kMost], scratch[1 << 17];
uint8_t keys[2 * kMost], values[2 * kMost];
int32_t places[2][64];
constexpr KvType kTypes[] = {KvType::f16, KvType::bf16, KvType::q8};

const RowKernels& kernels(Isa isa) {
  set_active_isa(isa);
  return row_kernels();
}

void fill(float* x, int n, float scale = 1.0f) {
  for (int i = 0; i < n; ++i) x[i] = scale * random_float();
}
void copy(const float* from, float* to, int n) {
  for (int i = 0; i < n; ++i) to[i] = from[i];
}

// |got - expected| <= 2^-16 of the largest: some roundings of float32, no mistake.
bool close(int n) {
  float most = 0.0f, error = 0.0f;
  for (int i = 0; i < n; ++i) {
    const float size = __builtin_fabsf(expected[i]), off = __builtin_fabsf(got[i] - expected[i]);
    most = size > most ? size : most;
    if (!(off <= error)) error = off;
  }
  return error <= 0x1p-16f * most && most > 0.0f;
}

// run(kernels, out [n]) for both, out being a's first n floats before.
template <class Run>
int differ(Isa isa, const char* name, int n, Run run) {
  copy(a, expected, n);
  copy(a, got, n);
  run(kernels(Isa::portable), expected);
  run(kernels(isa), got);
  if (close(n)) return 0;
  Line() << "  " << name << " differs, " << n << " values";
  return 1;
}

int check_plain(Isa isa, int n) {
  fill(a, n, 3.0f);
  fill(b, n, 20.0f);
  fill(c, n);
  int bad = 0;
  using R = const RowKernels&;
  bad += differ(isa, "rms_norm", n, [n](R k, float* x) { k.rms_norm(x, b, 1e-6f, n, x); });
  bad += differ(isa, "add", n, [n](R k, float* x) { k.add(x, b, n); });
  bad += differ(isa, "add_scaled", n, [n](R k, float* x) { k.add_scaled(x, b, 0.7f, n); });
  bad += differ(isa, "sigmoid_mul", n, [n](R k, float* x) { k.sigmoid_mul(x, b, n); });
  bad += differ(isa, "swish_mul", n, [n](R k, float* x) { k.swish_mul(x, b, n); });
  bad += differ(isa, "silu_mul", n, [n](R k, float* x) { k.silu_mul(x, b, n); });
  bad += differ(isa, "unit", n, [n](R k, float* x) { k.unit(x, 1e-6f, 2.0f, n); });
  bad += differ(isa, "multiply", n, [n](R k, float* x) { k.multiply(x, -1.5f, n); });
  bad += differ(isa, "dot", n, [n](R k, float* x) { x[0] = 10.0f * n + k.dot(x, b, n); });
  bad += differ(isa, "rotate", n / 2 * 2, [n](R k, float* x) { k.rotate(x, b, c, n / 2); });
  bad += differ(isa, "mix", n, [n](R k, float* x) {
    copy(x, scratch, n);
    k.mix(scratch, b, 1e-6f, c, 1, n, x);
  });
  for (KvType type : kTypes) {
    const int element = KvForm{type, n}.element();
    bad += differ(isa, "narrow", n, [=](R k, float* x) {
      k.narrow(type, x, n, keys, 3, values, 1);
      // The same bits. Of a scale the first number of its group tells.
      for (int i = 0; i < n; ++i) {
        x[i] = keys[3 * element * i] + 256.0f * keys[3 * element * i + element - 1];
        if (element == 1 && i % kScaled == 0) x[i] += 65536.0f * values[i / kScaled * 2];
      }
    });
  }
  return bad;
}

int check_convolution(Isa isa, int n, int dilation) {
  constexpr int kKernel = 4, kCount = 7;
  const int window = (kKernel - 1) * dilation * n;
  fill(a, kCount * n + window);
  fill(b, kKernel * n);
  return differ(isa, "convolve", kCount * n + window, [=](const RowKernels& k, float* x) {
    const Convolution taps{b, size_t(n), kKernel, dilation, n, x + kCount * n, size_t(n)};
    k.convolve(taps, x, n, kCount, scratch);
  });
}

// a: the state [dim, dim], then v [count, dim]. Keys of length one at most, or it grows.
int check_scan(Isa isa, int dim, int columns, int count) {
  fill(a, dim * dim + count * dim);
  fill(b, 2 * count * dim, 1.0f / static_cast<float>(dim));
  for (int i = 0; i < 2 * count; ++i) c[i] = 0.75f + 0.25f * random_float();
  return differ(isa, "scan", dim * dim + count * dim, [=](const RowKernels& k, float* x) {
    const size_t stride = size_t(dim);
    k.scan({b, b + count * dim, x + dim * dim, stride, c, c + count, 1, x, dim, columns, count},
           scratch);
  });
}

int check_indexer(Isa isa, int count, int heads, int dim) {
  fill(b, count * dim);
  fill(c, heads * dim);
  const int bad = differ(isa, "score_blocks", count, [=](const RowKernels& k, float* x) {
    k.score_blocks(b, count, c, heads, dim, x);
  });
  const int most = count / 2 + 1;
  kernels(Isa::portable).largest(expected, count, most, places[0]);
  kernels(isa).largest(expected, count, most, places[1]);
  for (int i = 0; i < most; ++i) {
    if (places[0][i] == places[1][i]) continue;
    Line() << "  largest differs, " << count << " values";
    return bad + 1;
  }
  return bad;
}

// `rows` queries that see 270 keys or fewer, in two segments, merged.
int check_attention(Isa isa, KvType type, int dim, int rows) {
  constexpr int kBlock = 16, kKeys = 270, kPages = (kKeys + kBlock - 1) / kBlock;
  static int32_t pages[kPages];
  static int seen[32];
  const KvForm form{type, dim};
  const size_t page = form.vector() * kBlock;
  if (page * kPages > sizeof keys) return 0;
  for (int i = 0; i < kPages; ++i) pages[i] = kPages - 1 - i;
  for (int r = 0; r < rows; ++r) seen[r] = kKeys - rows + 1 + r;
  set_active_isa(Isa::portable);
  for (int i = 0; i < kPages * kBlock; ++i) {
    fill(a, 2 * dim);
    form.put_key(a, keys + i / kBlock * page, kBlock, i % kBlock);
    form.put_value(a + dim, values + i / kBlock * page, kBlock, i % kBlock);
  }
  fill(b, rows * dim, 0.5f);
  const Keys memory{keys, values, page, page, pages, kBlock, kBlock, form};
  return differ(isa, "attend", rows * dim, [=](const RowKernels& k, float* y) {
    const int stride = sums_stride(dim);
    const Queries queries{b, seen, rows};
    const Sums first{c, c + rows * stride, c + rows * (stride + 1)};
    float* next = c + rows * (stride + 2);
    const Sums second{next, next + rows * stride, next + rows * (stride + 1)};
    k.attend(memory, queries, 0, kKeys, scratch, first);
    k.attend(memory, queries, 1, kKeys, scratch, second);
    k.merge(first, second, queries, 1, dim);
    k.finish(first, rows, 1, dim, y, size_t(dim));
  });
}

}  // namespace

int check_rows(Isa isa) {
  int bad = 0;
  for (int n : {2, 3, 16, 37, 67, 256}) bad += check_plain(isa, n);
  for (int n : {5, 32, 50}) bad += check_convolution(isa, n, 1) + check_convolution(isa, n, 3);
  for (int count : {1, 2, 9}) bad += check_scan(isa, 64, 32, count) + check_scan(isa, 24, 24, count);
  for (int count : {1, 4, 11, 60}) bad += check_indexer(isa, count, 5, 40);
  for (int dim : {64, 72, 128}) {
    for (int rows : {1, 6, 11, 23})
      for (KvType type : kTypes) bad += check_attention(isa, type, dim, rows);
  }
  return bad;
}
