#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace ddl {

/// SplitMix64 (Steele, Lea, Flood 2014). Used instead of <random> where a sequence has to be the same
/// with every standard library.
class SplitMix64 {
 public:
  /// A stream of its own for every pair.
  SplitMix64(std::uint64_t seed, std::uint64_t stream) noexcept : state_(mix(seed) + mix(~stream)) {}

  std::uint64_t next() noexcept { return mix(state_ += golden_gamma); }

  /// Uniform in [0, bound), without bias. `bound` > 0.
  std::uint64_t below(std::uint64_t bound) noexcept {
    const std::uint64_t first_fair = (0 - bound) % bound;
    std::uint64_t value = next();
    while (value < first_fair) value = next();
    return value % bound;
  }

  static constexpr std::uint64_t golden_gamma = 0x9e3779b97f4a7c15;

  /// Spreads each bit over all; no two values become one.
  static constexpr std::uint64_t mix(std::uint64_t z) noexcept {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

 private:
  std::uint64_t state_;
};

/// Fisher-Yates.
template <typename T>
void shuffle(std::span<T> values, SplitMix64& random) noexcept {
  for (std::size_t left = values.size(); left > 1; --left) {
    std::swap(values[left - 1], values[random.below(left)]);
  }
}

}  // namespace ddl
