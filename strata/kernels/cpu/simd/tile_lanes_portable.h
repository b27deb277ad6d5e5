// 8 lanes in plain C++, for any compiler and processor. See tile_lanes.h. Tiles are
// those of AVX2, so this is also what the other files are tested against.
#pragma once
#include "gguf_rows.h"

#define KEEP(x) static_cast<void>(x)

namespace strata::portable {

inline constexpr int kRows = 8;
inline constexpr int kPatchRows = 1;
inline constexpr int kPatch32 = 1;
inline constexpr int kPatch256 = 1;
inline constexpr int kAtOnce = 1;
inline constexpr bool kOffsetQ8 = false;

struct F { float v[8]; };
struct I { int32_t v[8]; };
struct U { uint8_t v[32]; };
struct X { int8_t v[4]; };
struct P { int16_t v[16]; };
using S = I;

#define EACH for (int r = 0; r < 8; ++r)

STRATA_INLINE F f_all(float x) { F f; EACH f.v[r] = x; return f; }
STRATA_INLINE F f_zero() { return f_all(0.0f); }
STRATA_INLINE F f_load(const void* p) { F f; std::memcpy(&f, p, sizeof f); return f; }
STRATA_INLINE F f_half(const void* p) {
  F f;
  EACH f.v[r] = half_at(static_cast<const uint8_t*>(p) + 2 * r);
  return f;
}
STRATA_INLINE F f_bf16(const void* p) {
  F f;
  EACH f.v[r] = bf16_at(static_cast<const uint8_t*>(p) + 2 * r);
  return f;
}
STRATA_INLINE F f_upper(const void* p) {
  F f;
  EACH {
    const uint32_t bits = read_as<uint32_t>(static_cast<const uint8_t*>(p) + 4 * r) & ~255u;
    f.v[r] = read_as<float>(&bits);
  }
  return f;
}
STRATA_INLINE F f_e4m3(const void* p) {
  F f;
  EACH f.v[r] = e4m3_at(static_cast<const uint8_t*>(p) + r) * 0x1p-8f;
  return f;
}
STRATA_INLINE F f_mul(F a, F b) { EACH a.v[r] *= b.v[r]; return a; }
STRATA_INLINE F f_add(F a, F b) { EACH a.v[r] += b.v[r]; return a; }
STRATA_INLINE F f_fma(F a, F b, F c) {
  EACH c.v[r] = __builtin_fmaf(a.v[r], b.v[r], c.v[r]);
  return c;
}
STRATA_INLINE F f_fnma(F a, F b, F c) {
  EACH c.v[r] = __builtin_fmaf(-a.v[r], b.v[r], c.v[r]);
  return c;
}
STRATA_INLINE F f_from(I i) { F f; EACH f.v[r] = static_cast<float>(i.v[r]); return f; }
STRATA_INLINE F f_load_some(const float* p, int n) {
  F f = f_zero();
  for (int r = 0; r < n; ++r) f.v[r] = p[r];
  return f;
}
STRATA_INLINE void f_store_some(float* p, F v, int n) {
  for (int r = 0; r < n; ++r) p[r] = v.v[r];
}

STRATA_INLINE I i_all(int32_t x) { I i; EACH i.v[r] = x; return i; }
STRATA_INLINE I i_zero() { return i_all(0); }
template <int n>
STRATA_INLINE I i_shift_left(I a) { EACH a.v[r] *= 1 << n; return a; }
STRATA_INLINE I i_bytes(const void* p) {
  I i;
  EACH i.v[r] = static_cast<const uint8_t*>(p)[4 * r];
  return i;
}
STRATA_INLINE I i_sub(I a, I b) { EACH a.v[r] -= b.v[r]; return a; }
STRATA_INLINE I i_mul(I a, const I& b) { EACH a.v[r] *= b.v[r]; return a; }

STRATA_INLINE U u_load(const uint8_t* p) { U u; std::memcpy(&u, p, sizeof u); return u; }
STRATA_INLINE U u_low(U u) { for (uint8_t& b : u.v) b &= 15; return u; }
STRATA_INLINE U u_high(U u) { for (uint8_t& b : u.v) b >>= 4; return u; }
template <int bit>
STRATA_INLINE U u_fifth(U low, U bits) {
  for (int i = 0; i < 32; ++i) low.v[i] |= (bits.v[i] >> bit & 1) << 4;
  return low;
}
template <int from, int count>
STRATA_INLINE U u_bits(U u) {
  for (uint8_t& b : u.v) b = b >> from & ((1 << count) - 1);
  return u;
}
STRATA_INLINE U u_spare(U a, const U& b, const U& c) {
  for (int i = 0; i < 32; ++i) {
    a.v[i] = (a.v[i] >> 3 & 0x11) | (b.v[i] >> 2 & 0x22) | (c.v[i] >> 1 & 0x44);
  }
  return a;
}
STRATA_INLINE U u_table(const void* sixteen) {
  U u;
  for (int i = 0; i < 32; i += 16) std::memcpy(u.v + i, sixteen, 16);
  return u;
}
STRATA_INLINE U u_look_up(const U& table, U u) {
  for (uint8_t& b : u.v) b = table.v[b & 15];
  return u;
}
template <int pair>
STRATA_INLINE U u_two(U low, U bits) {
  for (int i = 0; i < 32; ++i) low.v[i] |= (bits.v[i] >> 2 * pair & 3) << 4;
  return low;
}
STRATA_INLINE X x_all(const void* p) { X x; std::memcpy(&x, p, 4); return x; }

template <bool is_signed>
STRATA_INLINE void add_products(I& total, const U& u, const X& x) {
  EACH for (int j = 0; j < 4; ++j) {
    const int w = is_signed ? int8_t(u.v[4 * r + j]) : u.v[4 * r + j];
    total.v[r] += w * x.v[j];
  }
}

template <int bits>
struct PairDot {
  I high, low;
  STRATA_INLINE void start(const I* neg) {
    high = i_zero();
    low = neg && bits < 8 ? *neg : i_zero();
  }
  STRATA_INLINE void step(int, const U& u, const X& coarse, const X& rest) {
    add_products<bits == 8>(high, u, coarse);
    add_products<bits == 8>(low, u, rest);
  }
  STRATA_INLINE I sum(const I*) const {
    I i = low;
    EACH i.v[r] += high.v[r] * 256;
    return i;
  }
};

STRATA_INLINE P p_unsigned(const uint8_t* p) {
  P w;
  for (int i = 0; i < 16; ++i) w.v[i] = p[i];
  return w;
}
STRATA_INLINE P p_signed(const uint8_t* p) {
  P w;
  for (int i = 0; i < 16; ++i) w.v[i] = int8_t(p[i]);
  return w;
}
STRATA_INLINE P p_all(int16_t x) { P p; for (int16_t& v : p.v) v = x; return p; }
STRATA_INLINE P p_odd(const uint8_t* p) {
  P w;
  for (int i = 0; i < 16; ++i) w.v[i] = 2 * (p[i / 2] >> i % 2 * 4 & 15) + 1;
  return w;
}
STRATA_INLINE P p_low(P p) { for (int16_t& v : p.v) v &= 15; return p; }
STRATA_INLINE P p_high(P p) { for (int16_t& v : p.v) v >>= 4; return p; }
STRATA_INLINE P p_mul(P a, const P& b) {
  for (int i = 0; i < 16; ++i) a.v[i] *= b.v[i];
  return a;
}
STRATA_INLINE S s_unsigned(const uint8_t* p) { S s; EACH s.v[r] = p[r]; return s; }
template <int which>
STRATA_INLINE S s_of(const P& pair) { S s; EACH s.v[r] = pair.v[2 * r + which]; return s; }
STRATA_INLINE I p_dot(I total, const P& pair, const X& two) {
  int16_t x[2];
  std::memcpy(x, &two, 4);
  EACH total.v[r] += pair.v[2 * r] * x[0] + pair.v[2 * r + 1] * x[1];
  return total;
}

template <int bits>
constexpr int kDotSteps = 8;

template <int bits, int steps>
struct ScaledDot {
  I part{};
  STRATA_INLINE void step(int, const U& u, const X& x) {
    add_products<bits == 8>(part, u, x);
  }
  STRATA_INLINE void add_to(I& total, const S& s) const { EACH total.v[r] += part.v[r] * s.v[r]; }
};

#undef EACH

}  // namespace strata::portable
