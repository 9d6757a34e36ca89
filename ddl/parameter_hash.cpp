#include "ddl/parameter_hash.hpp"

#include <array>
#include <bit>
#include <cstring>

#include "ddl/hash.hpp"

namespace ddl {
namespace {

/// A multiplication takes 3 cycles, and one can begin in each: more than enough lanes to hide that.
constexpr std::size_t lanes = 8;
constexpr std::size_t block_bytes = lanes * sizeof(std::uint64_t);
constexpr std::uint64_t odd = 0x9fb21c651e98df25;

using Lanes = std::array<std::uint64_t, lanes>;

void take_block(Lanes& state, const std::byte* block) noexcept {
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    std::uint64_t word = 0;
    std::memcpy(&word, block + lane * sizeof word, sizeof word);
    word ^= state[lane];
    // No two words, and no two states, become one. Without the rotations a word's highest bit would only
    // reach the highest, and one flipped in the next word would take that back.
    state[lane] = (word ^ std::rotl(word, 24) ^ std::rotl(word, 49)) * odd;
  }
}

}  // namespace

std::uint64_t hash_of(std::span<const std::byte> bytes, std::uint64_t before) noexcept {
  Lanes state;
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    state[lane] = SplitMix64::finish(before + (lane + 1) * SplitMix64::gamma);
  }
  std::size_t at = 0;
  for (; at + block_bytes <= bytes.size(); at += block_bytes) take_block(state, bytes.data() + at);
  if (at < bytes.size()) {
    std::array<std::byte, block_bytes> last{};
    std::memcpy(last.data(), bytes.data() + at, bytes.size() - at);
    take_block(state, last.data());
  }
  std::uint64_t hash = bytes.size();
  for (const std::uint64_t each : state) hash = SplitMix64::finish(hash ^ each);
  return hash;
}

}  // namespace ddl
