// Products with super-blocks that are read as codes (codes.h): Q2_K, Q3_K and all IQ and TQ.
//
// A code becomes an unsigned byte u = value + offset: as it is, or by a table of 16. Per
// super-block, row and output, with exact integers as in matmul_256.cpp and d_w, dmin times the
// format's powers of two:
//   i = sum (step s) u x - offset sum s x;   y = fma(i * d_w, d_x, y)
//   and with minima, t = sum m x:            y = fma(fma(-t, dmin, i * d_w), d_x, y)
#include "codes.h"
#include "simd/super_blocks.h"

namespace strata::STRATA_ISA {

namespace {

constexpr int bits_of(int most) { return most < 2 ? 1 : 1 + bits_of(most / 2); }

template <int format>
struct Coded {
  static constexpr int kFormat = format;
  static constexpr CodesLayout kLayout = codes_layout(format);
  static constexpr bool kTable = kLayout.step == 0;
  static constexpr bool kMinima = kLayout.scales == SCALE_MIN || kLayout.scales == SCALE_TIMES;
  // Of the bytes that are multiplied.
  static constexpr int kBits = kTable ? bits_of(2 * kLayout.offset) : kLayout.bits;
  static constexpr int kOffset = kBits == 8 && !kOffsetQ8 ? 0 : kLayout.offset;
  static constexpr int kUnits = block_layout(format).units;
  static constexpr int kFirst = 1 + scale_units(kLayout);
  // A scale serves one `run` of units.
  static constexpr int kRun = kLayout.width / 4;

  U table;
  F unit, unit_min;

  Coded() : table(), unit(f_all(code_unit(format))), unit_min(f_all(code_unit_min(format))) {
    if constexpr (kTable) {
      uint8_t bytes[16];
      for (int i = 0; i < 16; ++i) {
        const int code = i % (1 << kLayout.bits);
        bytes[i] = static_cast<uint8_t>(code_values(format)[code] + kOffset);
      }
      table = u_table(bytes);
    }
  }

  // The scales 2 j and 2 j + 1 of every row.
  STRATA_INLINE static P scales(const uint8_t* w, int j) {
    const uint8_t* at = w + kUnit + j * (kLayout.scales == SCALE_ODD ? kRows : kHalves);
    if constexpr (kLayout.scales == SCALE_ONE) return p_all(1);
    else if constexpr (kLayout.scales == SCALE_ODD) return p_odd(at);
    else if constexpr (kLayout.scales == SCALE_BYTE) return p_signed(at);
    else return p_low(p_unsigned(at));
  }

  STRATA_INLINE static P minima(const uint8_t* w, int j) {
    const P both = p_unsigned(w + kUnit + j * kHalves);
    if constexpr (kLayout.scales == SCALE_MIN) return p_high(both);
    else return p_mul(p_low(both), p_high(both));
  }

  template <int which>
  STRATA_INLINE static S scale(P pair) {
    const S s = s_of<which>(pair);
    if constexpr (kLayout.step > 1) return i_shift_left<bits_of(kLayout.step) - 1>(s);
    else return s;
  }

  // Unit u (0..7) of the 32 weights j (0..7).
  template <int j>
  STRATA_INLINE U load(const uint8_t* w, int u) const {
    const uint8_t* units = w + kFirst * kUnit;
    U codes;
    if constexpr (kLayout.bits == 4) {
      const U both = u_load(units + (j / 2 * 8 + u) * kUnit);
      codes = j % 2 ? u_high(both) : u_low(both);
    } else if constexpr (kLayout.bits == 2) {
      codes = u_bits<j % 4 * 2, 2>(u_load(units + (j / 4 * 8 + u) * kUnit));
    } else {
      const uint8_t* a = units + u * kUnit;
      const uint8_t *b = a + 8 * kUnit, *c = b + 8 * kUnit;
      const U both = j < 6 ? u_load(j < 2 ? a : j < 4 ? b : c)
                           : u_spare(u_load(a), u_load(b), u_load(c));
      codes = u_bits<j % 2 * 4, kTable ? 4 : 3>(both);  // the table does not mind a fourth bit
    }
    if constexpr (kTable) return u_look_up(table, codes);
    else return codes;
  }

  // The 32 weights j, for all rows.
  template <int j, int MR>
  STRATA_INLINE void products(const uint8_t* w, const uint8_t* ahead,
                              const uint8_t* const (&rows)[MR], size_t at,
                              Totals (&total)[MR]) const {
    constexpr int few = kFew<MR>;
    constexpr int steps = kRun < kDotSteps<kBits> ? kRun : kDotSteps<kBits>;
    const P pair = scales(w, kRun == 4 ? j : j / 2);
    STRATA_UNROLL for (int first = 0; first < 8; first += steps) {
      const bool second = kRun == 4 ? first >= 4 : j % 2;
      const S s = second ? scale<1>(pair) : scale<0>(pair);
      STRATA_UNROLL for (int from = 0; from < MR; from += few) {
        ScaledDot<kBits, steps> dot[few][2];
        STRATA_UNROLL for (int u = 0; u < steps; ++u) {
          if (from == 0) stream<kUnits>(ahead, 8 * j + first + u);
          const U q = load<j>(w, first + u);
          STRATA_UNROLL for (int i = 0; i < few; ++i) {
            const int8_t* x = act(rows, from + i, at).coarse + 32 * j + 4 * (first + u);
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

  STRATA_INLINE static const int16_t* sums(const Act256& x, int part) {
    return kRun == 4 ? x.sum16[part] : x.sum32[part];
  }

  // -offset sum s x: where the totals begin.
  template <int MR>
  STRATA_INLINE static void start(const uint8_t* w, const uint8_t* const (&rows)[MR], size_t at,
                                  Totals (&total)[MR]) {
    STRATA_UNROLL for (int m = 0; m < MR; ++m) total[m] = {{i_zero(), i_zero()}};
    if constexpr (kOffset != 0) {
      STRATA_UNROLL for (int j = 0; j < 32 / kRun; ++j) {
        const P pair = scales(w, j);
        STRATA_UNROLL for (int m = 0; m < MR; ++m) {
          STRATA_UNROLL for (int part = 0; part < 2; ++part) {
            I& t = total[m].part[part];
            t = p_dot(t, pair, x_all(sums(act(rows, m, at), part) + 2 * j));
          }
        }
      }
      STRATA_UNROLL for (int m = 0; m < MR; ++m) {
        STRATA_UNROLL for (I& t : total[m].part) t = i_mul(t, i_all(-kOffset));
      }
    }
  }

  STRATA_INLINE static I minimum(const uint8_t* w, const Act256& x) {
    I t = i_zero();  // below 2^31 with both parts
    STRATA_UNROLL for (int part = 0; part < 2; ++part) {
      t = i_shift_left<8>(t);
      STRATA_UNROLL for (int j = 0; j < 32 / kRun; ++j) {
        t = p_dot(t, minima(w, j), x_all(sums(x, part) + 2 * j));
      }
    }
    return t;
  }

  template <int MR>
  STRATA_INLINE void block(const uint8_t* w, const uint8_t* ahead,
                           const uint8_t* const (&rows)[MR], size_t at, F (&acc)[1][MR]) const {
    Totals total[MR];
    start(w, rows, at, total);
    products<0>(w, ahead, rows, at, total);
    products<1>(w, ahead, rows, at, total);
    products<2>(w, ahead, rows, at, total);
    products<3>(w, ahead, rows, at, total);
    products<4>(w, ahead, rows, at, total);
    products<5>(w, ahead, rows, at, total);
    products<6>(w, ahead, rows, at, total);
    products<7>(w, ahead, rows, at, total);
    const F d = f_mul(f_half(w), unit);
    STRATA_UNROLL for (int m = 0; m < MR; ++m) {
      const Act256& x = act(rows, m, at);
      F value = f_mul(total[m].both(f_all(256.0f)), d);
      if constexpr (kMinima) {
        value = f_fnma(f_from(minimum(w, x)), f_mul(f_half(w + kHalves), unit_min), value);
      }
      acc[0][m] = f_fma(value, f_all(x.d), acc[0][m]);
      KEEP(acc[0][m]);
    }
  }
};

}  // namespace

void multiply_codes(int format, const Panel& panel) {
  switch (format) {
    case Q2_K: cover<Kernel256<Coded<Q2_K>>>(panel); break;
    case Q3_K: cover<Kernel256<Coded<Q3_K>>>(panel); break;
    case IQ1_S: cover<Kernel256<Coded<IQ1_S>>>(panel); break;
    case IQ1_M: cover<Kernel256<Coded<IQ1_M>>>(panel); break;
    case IQ2_XXS: cover<Kernel256<Coded<IQ2_XXS>>>(panel); break;
    case IQ2_XS:
    case IQ2_S: cover<Kernel256<Coded<IQ2_XS>>>(panel); break;
    case IQ3_XXS: cover<Kernel256<Coded<IQ3_XXS>>>(panel); break;
    case IQ3_S: cover<Kernel256<Coded<IQ3_S>>>(panel); break;
    case IQ4_XS: cover<Kernel256<Coded<IQ4_XS>>>(panel); break;
    default: cover<Kernel256<Coded<TQ1_0>>>(panel);
  }
}

}  // namespace strata::STRATA_ISA
