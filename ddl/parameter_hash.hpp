#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ddl {

/// 64 bits that tell arrays apart by their exact bits, sizes and order: NaNs by their payload, -0 from +0.
/// Arrays of one size that differ within one aligned word of 8 bytes, by a flipped bit say, never have the
/// same hash; others by chance, one pair in 2^64. Nothing that keeps out who means to deceive. The same on
/// all little-endian machines and for all time: states in checkpoints hold it.
///
/// `before` is the hash of what comes before these bytes, or 0. Independent lanes keep the processor's
/// multiplier busy: 0.7 times as fast as adding up 256 MiB, where it was measured.
std::uint64_t hash_of(std::span<const std::byte> bytes, std::uint64_t before = 0) noexcept;

template <typename T>
std::uint64_t hash_of(std::span<T> values, std::uint64_t before = 0) noexcept {
  return hash_of(std::as_bytes(values), before);
}

}  // namespace ddl
