#pragma once

#include <cstdint>

namespace ddl::topology {

/// 64 bits that look random, of any 64: the finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable
/// pseudorandom number generators", 2014). One to one.
constexpr std::uint64_t mix(std::uint64_t value) noexcept {
  value += 0x9e3779b97f4a7c15U;
  value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27U)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31U);
}

/// Evenly from [0, 1).
constexpr double unit_from(std::uint64_t bits) noexcept { return static_cast<double>(bits >> 11U) * 0x1p-53; }

}  // namespace ddl::topology
