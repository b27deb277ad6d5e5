// Products with weights in super-blocks of 256: Q4_K, Q5_K, Q6_K.
//
// Per super-block, row and output: exact integer sums of both bytes of the activations,
// scales included, i = fma(sum of the coarse ones, 256, sum of the rests), then
//   Q4_K, Q5_K   y = fma(fma(-t, dmin, i * d_w), d_x, y)    i = sum s q x, t = sum m x
//   Q6_K         y = fma(i * d_w, d_x, y)                   i = sum s (q - 32) x
#include "simd/super_blocks.h"

namespace strata::STRATA_ISA {

namespace {

// Sub-blocks 2 c and 2 c + 1 of Q4_K and Q5_K: low and high nibbles of eight units.
template <bool fifth, int c, int MR>
STRATA_INLINE void sub_blocks(const uint8_t* block, const uint8_t* ahead,
                              const uint8_t* const (&rows)[MR], size_t at, Totals (&total)[MR]) {
  constexpr int few = kFew<MR>;
  constexpr int bits = fifth ? 5 : 4;
  constexpr int step = fifth && c == 0 ? 2 : 1;  // the first eight lie between the fifth bits
  constexpr int first = !fifth ? 3 + 8 * c : c == 0 ? 4 : 11 + 8 * c;
  STRATA_UNROLL for (int high = 0; high < 2; ++high) {
    const S s = s_unsigned(block + kUnit + (2 * c + high) * kRows);
    STRATA_UNROLL for (int from = 0; from < MR; from += few) {
      ScaledDot<bits, 8> dot[few][2];
      STRATA_UNROLL for (int u = 0; u < 8; ++u) {
        if (from == 0) stream<fifth ? 45 : 37>(ahead, 16 * c + 8 * high + u);
        const U both = u_load(block + (first + step * u) * kUnit);
        U w = high ? u_high(both) : u_low(both);
        if constexpr (fifth) {
          const U more = u_load(block + (3 + 2 * u) * kUnit);
          w = high ? u_fifth<2 * c + 1>(w, more) : u_fifth<2 * c>(w, more);
        }
        STRATA_UNROLL for (int i = 0; i < few; ++i) {
          const int8_t* x = act(rows, from + i, at).coarse + 64 * c + 32 * high + 4 * u;
          dot[i][0].step(u, w, x_all(x));
          dot[i][1].step(u, w, x_all(x + 256));
        }
      }
      STRATA_UNROLL for (int i = 0; i < few; ++i) {
        dot[i][0].add_to(total[from + i].part[0], s);
        dot[i][1].add_to(total[from + i].part[1], s);
      }
    }
  }
}

template <bool fifth>
struct SubScaled {
  static constexpr int kFormat = fifth ? Q5_K : Q4_K;

  template <int MR>
  STRATA_INLINE static void block(const uint8_t* w, const uint8_t* ahead,
                                  const uint8_t* const (&rows)[MR], size_t at, F (&acc)[1][MR]) {
    Totals total[MR];
    STRATA_UNROLL for (int m = 0; m < MR; ++m) total[m] = {{i_zero(), i_zero()}};
    sub_blocks<fifth, 0, MR>(w, ahead, rows, at, total);
    sub_blocks<fifth, 1, MR>(w, ahead, rows, at, total);
    sub_blocks<fifth, 2, MR>(w, ahead, rows, at, total);
    sub_blocks<fifth, 3, MR>(w, ahead, rows, at, total);
    const F d = f_half(w), dmin = f_half(w + kHalves), unit = f_all(256.0f);
    STRATA_UNROLL for (int m = 0; m < MR; ++m) {
      const Act256& x = act(rows, m, at);
      I t = i_zero();  // below 2^30 with both parts
      STRATA_UNROLL for (int part = 0; part < 2; ++part) {
        t = i_shift_left<8>(t);
        STRATA_UNROLL for (int j = 0; j < 4; ++j) {
          const P minima = p_unsigned(w + (fifth ? 43 : 35) * kUnit + j * kHalves);
          t = p_dot(t, minima, x_all(x.sum32[part] + 2 * j));
        }
      }
      const F value = f_fnma(f_from(t), dmin, f_mul(total[m].both(unit), d));
      acc[0][m] = f_fma(value, f_all(x.d), acc[0][m]);
      KEEP(acc[0][m]);
    }
  }
};

// Group g (0..3) of half h of Q6_K: 32 weights, two sub-blocks of 16.
template <int h, int g, int MR>
STRATA_INLINE void sixteens(const uint8_t* w, const uint8_t* ahead,
                            const uint8_t* const (&rows)[MR], size_t at, Totals (&total)[MR]) {
  constexpr int few = kFew<MR>;
  const uint8_t* half = w + (1 + 26 * h) * kUnit;
  const P pair = p_signed(half + g * kHalves);
  STRATA_UNROLL for (int part = 0; part < 2; ++part) {
    const S s = part ? s_of<1>(pair) : s_of<0>(pair);
    STRATA_UNROLL for (int from = 0; from < MR; from += few) {
      ScaledDot<6, 4> dot[few][2];
      STRATA_UNROLL for (int u = 0; u < 4; ++u) {
        const int at8 = 4 * part + u;
        if (from == 0) stream<53>(ahead, 32 * h + 8 * g + 4 * part + u);
        const U both = u_load(half + (g % 2 ? 18 + at8 : 3 + 2 * at8) * kUnit);
        const U low = g < 2 ? u_low(both) : u_high(both);
        const U q = u_two<g>(low, u_load(half + (2 + 2 * at8) * kUnit));
        STRATA_UNROLL for (int i = 0; i < few; ++i) {
          const int8_t* x = act(rows, from + i, at).coarse + 128 * h + 32 * g + 16 * part + 4 * u;
          dot[i][0].step(u, q, x_all(x));
          dot[i][1].step(u, q, x_all(x + 256));
        }
      }
      STRATA_UNROLL for (int i = 0; i < few; ++i) {
        dot[i][0].add_to(total[from + i].part[0], s);
        dot[i][1].add_to(total[from + i].part[1], s);
      }
    }
  }
}

struct Sixteens {
  static constexpr int kFormat = Q6_K;

  template <int MR>
  STRATA_INLINE static void block(const uint8_t* w, const uint8_t* ahead,
                                  const uint8_t* const (&rows)[MR], size_t at, F (&acc)[1][MR]) {
    Totals total[MR];
    STRATA_UNROLL for (int m = 0; m < MR; ++m) total[m] = {{i_zero(), i_zero()}};
    sixteens<0, 0, MR>(w, ahead, rows, at, total);
    sixteens<0, 1, MR>(w, ahead, rows, at, total);
    sixteens<0, 2, MR>(w, ahead, rows, at, total);
    sixteens<0, 3, MR>(w, ahead, rows, at, total);
    sixteens<1, 0, MR>(w, ahead, rows, at, total);
    sixteens<1, 1, MR>(w, ahead, rows, at, total);
    sixteens<1, 2, MR>(w, ahead, rows, at, total);
    sixteens<1, 3, MR>(w, ahead, rows, at, total);
    const F d = f_half(w), unit = f_all(256.0f);
    STRATA_UNROLL for (int m = 0; m < MR; ++m) {
      const Act256& x = act(rows, m, at);
      STRATA_UNROLL for (int part = 0; part < 2; ++part) {
        I t = i_zero();
        STRATA_UNROLL for (int j = 0; j < 8; ++j) {
          const P scales = p_signed(w + (1 + j / 4 * 26) * kUnit + j % 4 * kHalves);
          t = p_dot(t, scales, x_all(x.sum16[part] + 2 * j));
        }
        total[m].part[part] = i_sub(total[m].part[part], i_shift_left<5>(t));
      }
      const F value = f_mul(total[m].both(unit), d);
      acc[0][m] = f_fma(value, f_all(x.d), acc[0][m]);
      KEEP(acc[0][m]);
    }
  }
};

}  // namespace

void multiply_256(int format, const Panel& panel) {
  switch (format) {
    case Q4_K: cover<Kernel256<SubScaled<false>>>(panel); break;
    case Q5_K: cover<Kernel256<SubScaled<true>>>(panel); break;
    default: cover<Kernel256<Sixteens>>(panel);
  }
}

}  // namespace strata::STRATA_ISA
