#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

/// @file
/// Hashes and random numbers that are the same on every machine and with every standard library. Not
/// cryptographic.

namespace ddl {

/// An incremental 64-bit FNV-1a hash (Fowler, Noll and Vo).
class Fnv {
 public:
  /// Starts from FNV's offset basis, xor `salt`.
  explicit constexpr Fnv(std::uint64_t salt = 0) noexcept : value_(0xcbf29ce484222325 ^ salt) {}
  /// Adds one byte, or a whole word in one step; the latter is faster and gives another hash than adding the
  /// word's bytes.
  constexpr void add(std::uint64_t word) noexcept { value_ = (value_ ^ word) * 0x100000001b3; }
  /// Adds the eight bytes of `number`, the least significant first.
  constexpr void add_number(std::uint64_t number) noexcept {
    for (int i = 0; i < 8; ++i) add(number >> (8 * i) & 0xff);
  }
  /// The hash of everything added so far.
  [[nodiscard]] constexpr std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_;
};

/// The pseudorandom generator SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", 2014).
class SplitMix64 {
 public:
  /// Starts from `state`; every value is a good one.
  explicit constexpr SplitMix64(std::uint64_t state) noexcept : state_(state) {}
  /// Starts a different stream for every pair of `seed` and `stream`.
  constexpr SplitMix64(std::uint64_t seed, std::uint64_t stream) noexcept
      : state_(finish(seed) + finish(~stream)) {}

  /// The next 64 random bits.
  constexpr std::uint64_t next() noexcept { return finish(state_ += gamma); }

  /// A uniform integer in [0, bound), without bias. `bound` > 0.
  constexpr std::uint64_t below(std::uint64_t bound) noexcept {
    const std::uint64_t first_fair = (0 - bound) % bound;
    std::uint64_t value = next();
    while (value < first_fair) value = next();
    return value % bound;
  }

  /// Increment of the state at each step.
  static constexpr std::uint64_t gamma = 0x9e3779b97f4a7c15;

  /// A bijection in which each input bit affects all output bits.
  static constexpr std::uint64_t finish(std::uint64_t z) noexcept {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

 private:
  std::uint64_t state_;
};

/// A bijection from 64 bits to 64 bits that look random.
constexpr std::uint64_t mix(std::uint64_t value) noexcept { return SplitMix64(value).next(); }

/// Maps 64 random bits to a uniform double in [0, 1), by the upper 53 bits.
constexpr double unit_from(std::uint64_t bits) noexcept { return static_cast<double>(bits >> 11U) * 0x1p-53; }

/// Shuffles `values` uniformly by the Fisher-Yates algorithm; draws from `random`.
template <typename T>
void shuffle(std::span<T> values, SplitMix64& random) noexcept {
  for (std::size_t left = values.size(); left > 1; --left) {
    std::swap(values[left - 1], values[random.below(left)]);
  }
}

}  // namespace ddl
