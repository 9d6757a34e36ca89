#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace ddl {

/// Gradients [first, end), in order of registration.
struct GradientRange {
  std::size_t first;
  std::size_t end;
};

/// Cuts gradients of these sizes into buckets, last gradients first. A bucket is closed before it
/// would exceed `bucket_bytes`, but holds at least one gradient.
inline std::vector<GradientRange> bucket_ranges(std::span<const std::size_t> bytes,
                                                std::size_t bucket_bytes) {
  std::vector<GradientRange> ranges;
  std::size_t end = bytes.size();
  while (end > 0) {
    std::size_t first = end - 1;
    std::size_t sum = bytes[first];
    while (first > 0 && sum <= bucket_bytes && bytes[first - 1] <= bucket_bytes - sum) sum += bytes[--first];
    ranges.push_back({first, end});
    end = first;
  }
  return ranges;
}

}  // namespace ddl
