// Products with weights in blocks of 32: Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, I4, and the values that a
// table gives for nibbles, IQ4_NL, MXFP4, NVFP4.
//
// Per block, row and output: an exact integer sum i of the 16-bit activations, then
//   y = fma(i * d_x, d_w, y)    and with minima    y = fma(d_x * sum(x), m, y),
// NVFP4 for each 16 weights.
// i < 2^28 (32 products of 2^8 and 2^15), so it is summed byte by byte in int32.
#include "codes.h"
#include "layout.h"
#include "simd/matmul.h"

namespace strata::STRATA_ISA {

namespace {

// What tells the formats apart. Weights are bytes of kBits, plus an offset of 8 << kOffset, none
// where it is -1.
template <int format, int bits, int offset>
struct Kind {
  static constexpr int kFormat = format, kBits = bits, kOffset = offset;
  static constexpr bool kMin = format == Q4_1 || format == Q5_1;
  static constexpr bool kFifth = format == Q5_0 || format == Q5_1;
  static constexpr bool kBf16 = format == MXFP4;
  static constexpr bool kZero = format == I4;  // a header's low byte is the offset
  static constexpr bool kTwoScales = format == NVFP4;  // each serves 16 weights
  static constexpr bool kTable = format == IQ4_NL || format == MXFP4 || format == NVFP4;

  static U table() {
    if constexpr (!kTable) return U();
    uint8_t bytes[16];
    const int8_t* values = format == IQ4_NL ? kValuesNL : kValuesFP4;
    for (int i = 0; i < 16; ++i) bytes[i] = values[i] + (offset < 0 ? 0 : 8 << (offset & 7));
    return u_table(bytes);
  }
};
constexpr int kByte = kOffsetQ8 ? 4 : -1;
using KindQ8_0 = Kind<Q8_0, 8, kByte>;
using KindQ4_0 = Kind<Q4_0, 4, 0>;
using KindQ4_1 = Kind<Q4_1, 4, -1>;
using KindQ5_0 = Kind<Q5_0, 5, 1>;
using KindQ5_1 = Kind<Q5_1, 5, -1>;
using KindI4 = Kind<I4, 4, 0>;
using KindIQ4_NL = Kind<IQ4_NL, 8, kByte>;
using KindMXFP4 = Kind<MXFP4, 5, 1>;
using KindNVFP4 = Kind<NVFP4, 5, 1>;

constexpr int kUnit = 4 * kRows;
constexpr int kHalves = 2 * kRows;

// Two units of a block: k = 4 p + j and k = 4 q + j, with 4 p and 4 q their places.
struct Two {
  U first, second;
};

template <class Kind, int p>
STRATA_INLINE Two load_two(const uint8_t* units, const U& table) {
  if constexpr (Kind::kTable) {
    const U both = u_load(units + p * kUnit);
    return {u_look_up(table, u_low(both)), u_look_up(table, u_high(both))};
  } else if constexpr (Kind::kBits == 8) {
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
STRATA_INLINE void quarter(const uint8_t* units, const U& table, const uint8_t* const (&rows)[MR],
                           size_t at, PairDot<Kind::kBits> (&dot)[MR]) {
  constexpr bool bytes = Kind::kFormat == Q8_0, two = Kind::kTwoScales;
  constexpr int first = bytes ? 8 * p : two ? 4 * (p % 2) + 16 * (p / 2) : 4 * p;
  constexpr int second = first + (bytes ? 4 : two ? 8 : 16);
  constexpr int step = two ? 2 * (p % 2) : 2 * p;
  const Two w = load_two<Kind, p>(units, table);
  constexpr int rest = offsetof(Act32, rest);
  STRATA_UNROLL for (int m = 0; m < MR; ++m) {
    const uint8_t* x = rows[m] + at + first;
    dot[m].step(step, w.first, x_all(x), x_all(x + rest));
  }
  STRATA_UNROLL for (int m = 0; m < MR; ++m) {
    const uint8_t* x = rows[m] + at + second;
    dot[m].step(step + 1, w.second, x_all(x), x_all(x + rest));
  }
}

// What the offset adds, for weights [16 half, 16 half + 16), or all 32.
template <class Kind>
STRATA_INLINE I offset(const Act32& x, int half, const uint8_t* header) {
  if constexpr (Kind::kZero) return i_mul(i_bytes(header), i_all(x.neg8 / 8));
  const int32_t neg8 = !Kind::kTwoScales ? x.neg8 : half ? x.neg8 - x.neg8_first : x.neg8_first;
  if constexpr (Kind::kOffset > 0) return i_shift_left<Kind::kOffset>(i_all(neg8));
  return i_all(neg8);
}

template <class Kind>
STRATA_INLINE F scale(const uint8_t* header) {
  if constexpr (Kind::kZero) return f_upper(header);
  else if constexpr (Kind::kBf16) return f_bf16(header);
  else return f_half(header);
}

// Quarters [from, to) of a block, which share a scale. header: the block's d, then m.
template <class Kind, int from, int to, int MR>
STRATA_INLINE void part(const uint8_t* header, const uint8_t* units, const U& table,
                        const uint8_t* const (&rows)[MR], size_t at, F (&acc)[1][MR]) {
  constexpr bool has_offset = Kind::kOffset >= 0;
  PairDot<Kind::kBits> dot[MR];
  STRATA_UNROLL for (int m = 0; m < MR; ++m) {
    const I neg = offset<Kind>(*reinterpret_cast<const Act32*>(rows[m] + at), from / 2, header);
    dot[m].start(has_offset ? &neg : nullptr);
  }
  quarter<Kind, from, MR>(units, table, rows, at, dot);
  quarter<Kind, from + 1, MR>(units, table, rows, at, dot);
  if constexpr (to == from + 4) {
    quarter<Kind, from + 2, MR>(units, table, rows, at, dot);
    quarter<Kind, from + 3, MR>(units, table, rows, at, dot);
  }
  const F d = scale<Kind>(header);
  const F min = Kind::kMin ? f_half(header + kHalves) : d;
  STRATA_UNROLL for (int m = 0; m < MR; ++m) {
    const Act32& x = *reinterpret_cast<const Act32*>(rows[m] + at);
    const I neg = offset<Kind>(x, from / 2, header);
    const F i = f_from(dot[m].sum(has_offset ? &neg : nullptr));
    acc[0][m] = f_fma(f_mul(i, f_all(x.d)), d, acc[0][m]);
    if (Kind::kMin) acc[0][m] = f_fma(f_all(x.ds), min, acc[0][m]);
    KEEP(acc[0][m]);
  }
}

template <class Kind, int MR>
STRATA_INLINE void block(const uint8_t* header, const uint8_t* units, const U& table,
                         const uint8_t* const (&rows)[MR], size_t at, F (&acc)[1][MR]) {
  if constexpr (Kind::kTwoScales) {
    part<Kind, 0, 2, MR>(header, units, table, rows, at, acc);
    part<Kind, 2, 4, MR>(header + kHalves, units, table, rows, at, acc);
  } else {
    part<Kind, 0, 4, MR>(header, units, table, rows, at, acc);
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
    const U table = Kind::table();
    const bool cold = patch.row == 0;  // later rows find the weights in the cache
    for (int b = 0; b < blocks; ++b) {
      const int second = layout.group == 2 ? b & 1 : 0;
      const uint8_t* group = tile + size_t(layout.group == 2 ? b >> 1 : b) * group_bytes;
      const uint8_t* units = group + kUnit + second * block_bytes;
      if (cold) prefetch<block_bytes>(units);
      block<Kind, MR>(group + second * kHalves, units, table, rows, size_t(b) * sizeof(Act32),
                      acc);
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
    case Q5_1: cover<Kernel32<KindQ5_1>>(panel); break;
    case IQ4_NL: cover<Kernel32<KindIQ4_NL>>(panel); break;
    case MXFP4: cover<Kernel32<KindMXFP4>>(panel); break;
    default: cover<Kernel32<KindNVFP4>>(panel);
  }
}

}  // namespace strata::STRATA_ISA
