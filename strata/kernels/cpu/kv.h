// How the keys and values of a key head lie in a page.
//
// Those of `together` neighbouring tokens make a unit: their keys lie transposed, [dim, together],
// so that one vector holds the same component of neighbouring keys; their values lie [together,
// dim]. In q8 each 32 numbers of a key or value share a scale, a bfloat16, and the scales lie
// behind the unit's numbers, [groups, together]. Knows nothing of pages (attention.h) or
// arithmetic (simd/narrow.cpp).
#pragma once
#include <cstddef>
#include <cstdint>

namespace strata {

enum class KvType { f16, bf16, q8 };

inline constexpr int kScaled = 32;  // numbers that share a scale

struct KvForm {
  KvType type;
  int dim;
  int element() const { return type == KvType::q8 ? 1 : 2; }  // bytes of a number
  int groups() const { return type == KvType::q8 ? (dim + kScaled - 1) / kScaled : 0; }
  // Bytes of a token's key or value, scales included.
  size_t vector() const { return static_cast<size_t>(dim) * element() + 2 * groups(); }
  // From the start of a unit to its scales.
  size_t scales(int together) const { return static_cast<size_t>(dim) * element() * together; }
  // Rounds a key or a value [dim] into its place of a unit.
  void put_key(const float* key, uint8_t* unit, int together, int place) const;
  void put_value(const float* value, uint8_t* unit, int together, int place) const;
};

}  // namespace strata
