#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddl/gradient_reducer.hpp"

namespace ddl {

/// DDL_CHECK=1: finds misuse of gradients' memory. Each check reads the gradient once, and returns the text
/// of an error or nothing.
class GradientCheck {
 public:
  /// For gradients in the host's memory, which must outlive this object.
  explicit GradientCheck(std::span<const Gradient> gradients);

  /// Finds memory that has been freed or that still holds the last step's result, because the trainer writes
  /// elsewhere.
  std::optional<std::string> at_ready(std::size_t index);
  /// Remembers the gradient after its summands were added.
  void after_summands(std::size_t index);
  /// Finds memory that has been written to since `at_ready` or `after_summands`.
  [[nodiscard]] std::optional<std::string> before_reduction(std::size_t index) const;
  /// Remembers the step's results.
  void after_step();

 private:
  struct Seen {
    std::uint64_t at_ready = 0;
    std::uint64_t after_step = 0;
    bool has_step = false;  // `after_step` is valid, and the result was not all zeros
  };

  std::span<const Gradient> gradients_;
  std::vector<Seen> seen_;
};

}  // namespace ddl
