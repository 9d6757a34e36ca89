#pragma once

#include <array>
#include <cstdint>

namespace nmt {

/// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC11): four
/// random words that depend only on the counter and the key.
constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                              std::array<std::uint32_t, 2> key) noexcept {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(product0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

/// Identifies the random numbers of a dropout. The element at (sample, position, column) of site `site` in
/// step `step` gets the same number on any rank and in any batch.
struct DropoutKey {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint32_t site = 0;  ///< Which of the model's dropouts.

  [[nodiscard]] constexpr std::array<std::uint32_t, 2> philox_key() const noexcept {
    const std::array<std::uint32_t, 4> mixed =
        philox({static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(step >> 32), site, 0x6c73746du},
               {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
    return {mixed[0], mixed[1]};
  }
};

/// The random words of columns 4 * column_block to 4 * column_block + 3.
constexpr std::array<std::uint32_t, 4> dropout_words(std::array<std::uint32_t, 2> key, std::uint32_t sample,
                                                     std::uint32_t position,
                                                     std::uint32_t column_block) noexcept {
  return philox({sample, position, column_block, 0}, key);
}

/// A word below the threshold drops its element, which has probability `rate`.
constexpr std::uint32_t dropout_threshold(double rate) noexcept {
  return static_cast<std::uint32_t>(rate * 4294967296.0);
}

}  // namespace nmt
