#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ddl/gradient_reducer.hpp"
#include "ddl/parameters/parameters.hpp"

namespace ddl {

/// DDL_CHECK=1: finds misuse of gradients' memory. Each check reads the gradient once, and returns the text
/// of an error or nothing.
class GradientCheck {
 public:
  /// For gradients in the host's memory, which must outlive this object.
  explicit GradientCheck(std::span<const Gradient> gradients)
      : gradients_(gradients), seen_(gradients.size()) {}

  /// Finds memory that has been freed or that still holds the last step's result, because the trainer writes
  /// elsewhere.
  std::optional<std::string> at_ready(std::size_t index) {
    const std::span<const std::byte> values = gradients_[index].values.bytes();
    if (!is_mapped(values)) return "its memory is gone: expected it to stay while the reducer lives";
    for (const Elements& summand : gradients_[index].summands) {
      if (!is_mapped(summand.bytes())) {
        return "the memory of a summand is gone: expected it to stay while the reducer lives";
      }
    }
    const Seen& seen = seen_[index];
    if (!seen.has_step || hash_of(values) != seen.after_step) return {};
    return "it holds just what the last step left there: has its vector moved, so that backward writes "
           "elsewhere?";
  }

  /// Remembers a piece of a gradient that is ready, after its summands were added. Pieces of a gradient are
  /// reduced, and change, one by one.
  void remember(const GradientPiece& piece) { at_ready_[key_of(piece)] = hash_of(bytes_of(piece)); }

  /// Finds a piece that has been written to since `remember`.
  [[nodiscard]] std::optional<std::string> before_reduction(const GradientPiece& piece) const {
    const auto known = at_ready_.find(key_of(piece));
    if (known == at_ready_.end() || known->second == hash_of(bytes_of(piece))) return {};
    return "it was written to after it was reported as ready; report it when nothing is added to it any more";
  }

  /// Remembers the step's results.
  void after_step() {
    at_ready_.clear();
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      const std::span<const std::byte> values = gradients_[i].values.bytes();
      seen_[i].has_step = std::ranges::any_of(values, [](std::byte value) { return value != std::byte{0}; });
      seen_[i].after_step = hash_of(values);
    }
  }

 private:
  static bool is_mapped(std::span<const std::byte> values) {
    if (values.empty()) return true;
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(values.data()) / page * page;
    const std::uintptr_t end = reinterpret_cast<std::uintptr_t>(values.data() + values.size());
    std::vector<unsigned char> pages((end - begin + page - 1) / page);
    return mincore(reinterpret_cast<void*>(begin), end - begin, pages.data()) == 0;
  }

  using Key = std::pair<std::size_t, std::size_t>;  // the gradient and the piece's first element
  static Key key_of(const GradientPiece& piece) { return {piece.gradient, piece.first}; }
  [[nodiscard]] std::span<const std::byte> bytes_of(const GradientPiece& piece) const {
    return gradients_[piece.gradient].values.subspan(piece.first, piece.count).bytes();
  }

  struct Seen {
    std::uint64_t after_step = 0;
    bool has_step = false;  // `after_step` is valid, and the result was not all zeros
  };

  std::span<const Gradient> gradients_;
  std::vector<Seen> seen_;
  std::map<Key, std::uint64_t> at_ready_;
};

}  // namespace ddl
