// Products with weights in blocks of 32: Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, I4.
//
// Per block, row and output: an exact integer sum i of the 16-bit activations, then
//   y = fma(i * d_x, d_w, y)    and with minima    y = fma(d_x * sum(x), m, y).
// i < 2^28 (32 products of 2^8 and 2^15), so it is summed byte by byte in int32.
#include "layout.h"
#include "simd/matmul.h"

namespace strata::STRATA_ISA {

namespace {

// What tells the formats apart. kOffset is log2(offset / 8), -1 for none.
struct KindQ8_0 {
  static constexpr int kFormat = Q8_0, kBits = 8, kOffset = kOffsetQ8 ? 4 : -1;
  static constexpr bool kMin = false, kFifth = false;
};
struct KindQ4_0 {
  static constexpr int kFormat = Q4_0, kBits = 4, kOffset = 0;
  static constexpr bool kMin = false, kFifth = false;
};
struct KindQ4_1 {
  static constexpr int kFormat = Q4_1, kBits = 4, kOffset = -1;
  static constexpr bool kMin = true, kFifth = false;
};
struct KindQ5_0 {
  static constexpr int kFormat = Q5_0, kBits = 5, kOffset = 1;
  static constexpr bool kMin = false, kFifth = true;
};
struct KindQ5_1 {
  static constexpr int kFormat = Q5_1, kBits = 5, kOffset = -1;
  static constexpr bool kMin = true, kFifth = true;
};

struct KindI4 {  // its zero is in the header
  static constexpr int kFormat = I4, kBits = 4, kOffset = 0;
  static constexpr bool kMin = false, kFifth = false;
};

constexpr int kUnit = 4 * kRows;
constexpr int kHalves = 2 * kRows;

// Two units of a block: k = 4 p + j and k = 4 q + j, with 4 p and 4 q their places.
struct Two {
  U first, second;
};

template <class Kind, int p>
STRATA_INLINE Two load_two(const uint8_t* units) {
  if constexpr (Kind::kBits == 8) {
    return {u_load(units + 2 * p * kUnit), u_load(units + (2 * p + 1) * kUnit)};
  } else if constexpr (Kind::kFifth) {
    const U bits = u_load(units), both = u_load(units + (1 + p) * kUnit);
    return {u_fifth<p>(u_low(both), bits), u_fifth<p + 4>(u_high(both), bits)};
  } else {
    const U both = u_load(units + p * kUnit);
    return {u_low(both), u_high(both)};
  }
}

// One quarter of a block's products, for all rows of a patch.
template <class Kind, int p, int MR>
STRATA_INLINE void quarter(const uint8_t* units, const uint8_t* const (&rows)[MR], size_t at,
                           PairDot<Kind::kBits> (&dot)[MR]) {
  constexpr int first = Kind::kBits == 8 ? 8 * p : 4 * p;
  constexpr int second = Kind::kBits == 8 ? 8 * p + 4 : 4 * p + 16;
  const Two w = load_two<Kind, p>(units);
  constexpr int rest = offsetof(Act32, rest);
  STRATA_UNROLL for (int m = 0; m < MR; ++m) {
    const uint8_t* x = rows[m] + at + first;
    dot[m].step(2 * p, w.first, x_all(x), x_all(x + rest));
  }
  STRATA_UNROLL for (int m = 0; m < MR; ++m) {
    const uint8_t* x = rows[m] + at + second;
    dot[m].step(2 * p + 1, w.second, x_all(x), x_all(x + rest));
  }
}

template <class Kind>
STRATA_INLINE I offset(const Act32& x, const uint8_t* header) {
  if constexpr (Kind::kFormat == I4) return i_mul(i_bytes(header), i_all(x.neg8 / 8));
  if constexpr (Kind::kOffset > 0) return i_shift_left<Kind::kOffset>(i_all(x.neg8));
  return i_all(x.neg8);
}

// header: the block's d, then m.
template <class Kind, int MR>
STRATA_INLINE void block(const uint8_t* header, const uint8_t* units,
                         const uint8_t* const (&rows)[MR], size_t at, F (&acc)[1][MR]) {
  constexpr bool has_offset = Kind::kOffset >= 0;
  PairDot<Kind::kBits> dot[MR];
  STRATA_UNROLL for (int m = 0; m < MR; ++m) {
    const I neg = offset<Kind>(*reinterpret_cast<const Act32*>(rows[m] + at), header);
    dot[m].start(has_offset ? &neg : nullptr);
  }
  quarter<Kind, 0, MR>(units, rows, at, dot);
  quarter<Kind, 1, MR>(units, rows, at, dot);
  quarter<Kind, 2, MR>(units, rows, at, dot);
  quarter<Kind, 3, MR>(units, rows, at, dot);
  const F d = Kind::kFormat == I4 ? f_upper(header) : f_half(header);
  const F min = Kind::kMin ? f_half(header + kHalves) : d;
  STRATA_UNROLL for (int m = 0; m < MR; ++m) {
    const Act32& x = *reinterpret_cast<const Act32*>(rows[m] + at);
    const I neg = offset<Kind>(x, header);
    const F i = f_from(dot[m].sum(has_offset ? &neg : nullptr));
    acc[0][m] = f_fma(f_mul(i, f_all(x.d)), d, acc[0][m]);
    if (Kind::kMin) acc[0][m] = f_fma(f_all(x.ds), min, acc[0][m]);
    KEEP(acc[0][m]);
  }
}

// One tile at a time: the weights are one stream, which prefetching follows. (Two
// tiles at once halved the speed of one row: nothing fetched the second one's start.)
template <class Kind>
struct Kernel32 {
  static constexpr int kMaxRows = kPatch32;
  static constexpr int tiles_at(int) { return 1; }

  template <int MR, int NT>
  static __attribute__((noinline)) void patch(const Patch patch) {
    constexpr BlockLayout layout = block_layout(Kind::kFormat);
    constexpr size_t group_bytes = size_t(layout.units) * kUnit;
    constexpr size_t block_bytes = (layout.units - 1) / layout.group * size_t(kUnit);
    const Panel& p = *patch.panel;
    const uint8_t* tile = p.tiles + patch.tile * p.tile_bytes;
    const uint8_t* rows[MR];
    F acc[1][MR];
    for (int m = 0; m < MR; ++m) rows[m] = act_row(p, patch.row + m);
    STRATA_UNROLL for (int m = 0; m < MR; ++m) acc[0][m] = f_zero();
    const int blocks = p.k / 32;
    const bool cold = patch.row == 0;  // later rows find the weights in the cache
    for (int b = 0; b < blocks; ++b) {
      const int second = layout.group == 2 ? b & 1 : 0;
      const uint8_t* group = tile + size_t(layout.group == 2 ? b >> 1 : b) * group_bytes;
      const uint8_t* units = group + kUnit + second * block_bytes;
      if (cold) prefetch<block_bytes>(units);
      block<Kind, MR>(group + second * kHalves, units, rows, size_t(b) * sizeof(Act32), acc);
    }
    store<MR, 1>(patch, acc);
  }

  // 5 KB ahead, into the next tiles: some hundred nanoseconds of streaming.
  template <size_t bytes>
  STRATA_INLINE static void prefetch(const uint8_t* units) {
    STRATA_UNROLL for (size_t i = 0; i < bytes + kHalves; i += 64) {
      __builtin_prefetch(units + 5120 + i);
    }
  }
};

}  // namespace

void multiply_32(int format, const Panel& panel) {
  switch (format) {
    case Q8_0: cover<Kernel32<KindQ8_0>>(panel); break;
    case Q4_0: cover<Kernel32<KindQ4_0>>(panel); break;
    case Q4_1: cover<Kernel32<KindQ4_1>>(panel); break;
    case Q5_0: cover<Kernel32<KindQ5_0>>(panel); break;
    case I4: cover<Kernel32<KindI4>>(panel); break;
    default: cover<Kernel32<KindQ5_1>>(panel);
  }
}

}  // namespace strata::STRATA_ISA
