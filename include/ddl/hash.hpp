#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

/// Hashes and random numbers that are the same on every machine and with every standard library.

namespace ddl {

/// FNV-1a, 64 bits.
class Fnv {
 public:
  explicit constexpr Fnv(std::uint64_t salt = 0) noexcept : value_(0xcbf29ce484222325 ^ salt) {}
  /// A byte, or a whole word taken as one: faster, and another hash than that of its bytes.
  constexpr void add(std::uint64_t word) noexcept { value_ = (value_ ^ word) * 0x100000001b3; }
  /// Little-endian, all eight bytes.
  constexpr void add_number(std::uint64_t number) noexcept {
    for (int i = 0; i < 8; ++i) add(number >> (8 * i) & 0xff);
  }
  [[nodiscard]] constexpr std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_;
};

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
class SplitMix64 {
 public:
  explicit constexpr SplitMix64(std::uint64_t state) noexcept : state_(state) {}
  /// A stream of its own for every pair.
  constexpr SplitMix64(std::uint64_t seed, std::uint64_t stream) noexcept
      : state_(finish(seed) + finish(~stream)) {}

  constexpr std::uint64_t next() noexcept { return finish(state_ += gamma); }

  /// Uniform in [0, bound), without bias. `bound` > 0.
  constexpr std::uint64_t below(std::uint64_t bound) noexcept {
    const std::uint64_t first_fair = (0 - bound) % bound;
    std::uint64_t value = next();
    while (value < first_fair) value = next();
    return value % bound;
  }

  static constexpr std::uint64_t gamma = 0x9e3779b97f4a7c15;

  /// Spreads each bit over all; no two values become one.
  static constexpr std::uint64_t finish(std::uint64_t z) noexcept {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

 private:
  std::uint64_t state_;
};

/// 64 bits that look random, of any 64; no two values become one.
constexpr std::uint64_t mix(std::uint64_t value) noexcept { return SplitMix64(value).next(); }

/// Uniform in [0, 1).
constexpr double unit_from(std::uint64_t bits) noexcept { return static_cast<double>(bits >> 11U) * 0x1p-53; }

/// Fisher-Yates.
template <typename T>
void shuffle(std::span<T> values, SplitMix64& random) noexcept {
  for (std::size_t left = values.size(); left > 1; --left) {
    std::swap(values[left - 1], values[random.below(left)]);
  }
}

}  // namespace ddl
