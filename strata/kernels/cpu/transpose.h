// Rows of four- or two-byte values into columns, in vectors that every compiler's target has.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace strata {

template <class Value>
inline constexpr int kSquare = 16 / int(sizeof(Value));  // values of a vector, rows of a square

namespace detail {

template <class Value>
using Vector __attribute__((vector_size(16))) = Value;

// The lower or upper halves of a and b, value by value in turn.
template <class Value, bool upper, size_t... i>
Vector<Value> zip(Vector<Value> a, Vector<Value> b, std::index_sequence<i...>) {
  constexpr int n = kSquare<Value>;
  return __builtin_shufflevector(a, b, (int(i) / 2 + (upper ? n / 2 : 0) + int(i) % 2 * n)...);
}

}  // namespace detail

// A square of values: row i from `from` + i * from_step bytes to column i of the rows at `to`,
// `to_step` bytes apart; each value with the bits of `flip` turned over.
template <class Value>
inline void transpose(const uint8_t* from, size_t from_step, uint8_t* to, size_t to_step,
                      Value flip = 0) {
  constexpr int n = kSquare<Value>;
  using Vector = detail::Vector<Value>;
  constexpr auto all = std::make_index_sequence<n>();
  Vector v[n];
  for (int i = 0; i < n; ++i) std::memcpy(&v[i], from + i * from_step, 16);
  for (int stage = 1; stage < n; stage *= 2) {  // each deals the rows out like a pack of cards
    Vector next[n];
    for (int i = 0; i < n / 2; ++i) {
      next[2 * i] = detail::zip<Value, false>(v[i], v[i + n / 2], all);
      next[2 * i + 1] = detail::zip<Value, true>(v[i], v[i + n / 2], all);
    }
    std::memcpy(v, next, sizeof v);
  }
  for (int i = 0; i < n; ++i) {
    v[i] ^= flip;
    std::memcpy(to + i * to_step, &v[i], 16);
  }
}

}  // namespace strata
