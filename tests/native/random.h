// Random numbers that are the same on every machine.
#pragma once
#include <cstdint>

inline uint64_t random_state = 1;
inline void seed_random(uint64_t seed) { random_state = seed * 0x9e3779b97f4a7c15u | 1; }

inline uint32_t random_bits() {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return static_cast<uint32_t>(random_state >> 32);
}
// In [-1, 1), a multiple of 2^-23.
inline float random_float() {
  return static_cast<float>(static_cast<int32_t>(random_bits()) >> 8) * 0x1p-23f;
}
