#pragma once

#include <array>
#include <cstdint>

namespace nmt {

using PhiloxKey = std::array<std::uint32_t, 2>;

constexpr int philox_rounds = 10;

/// One round on the counter (c0, c1, c2, c3), each word in the low half of 64 bits; the high half is noise.
constexpr void philox_round(std::uint64_t& c0, std::uint64_t& c1, std::uint64_t& c2, std::uint64_t& c3,
                            const PhiloxKey& key) noexcept {
  const std::uint64_t product0 = (c0 & 0xffffffffu) * 0xD2511F53u;
  const std::uint64_t product1 = (c2 & 0xffffffffu) * 0xCD9E8D57u;
  c0 = (product1 >> 32) ^ c1 ^ key[0];
  c1 = product1;
  c2 = (product0 >> 32) ^ c3 ^ key[1];
  c3 = product0;
}
constexpr void philox_next_key(PhiloxKey& key) noexcept {
  key[0] += 0x9E3779B9u;
  key[1] += 0xBB67AE85u;
}

/// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC11): four
/// random words that depend only on the counter and the key.
constexpr std::array<std::uint32_t, 4> philox(const std::array<std::uint32_t, 4>& counter,
                                              PhiloxKey key) noexcept {
  std::uint64_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
  for (int round = 0; round < philox_rounds; ++round) {
    philox_round(c0, c1, c2, c3, key);
    philox_next_key(key);
  }
  return {static_cast<std::uint32_t>(c0), static_cast<std::uint32_t>(c1), static_cast<std::uint32_t>(c2),
          static_cast<std::uint32_t>(c3)};
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
