#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddl/gradient_reducer.hpp"

namespace ddl {

/// DDL_CHECK=1: finds gradients whose memory is not what the trainer takes it for. Each function returns what
/// is wrong, for an error, or nothing. Reads a gradient once a call.
class GradientCheck {
 public:
  /// Of a host's gradients, which outlive this.
  explicit GradientCheck(std::span<const Gradient> gradients);

  /// Freed, or as the last step left it: the trainer writes elsewhere.
  std::optional<std::string> at_ready(std::size_t index);
  /// Its summands are in it now.
  void after_summands(std::size_t index);
  /// Written to since `at_ready` or `after_summands`.
  [[nodiscard]] std::optional<std::string> before_reduction(std::size_t index) const;
  void after_step();

 private:
  struct Seen {
    std::uint64_t at_ready = 0;
    std::uint64_t after_step = 0;
    bool has_step = false;  // there is an `after_step`, which is not all zeros
  };

  std::span<const Gradient> gradients_;
  std::vector<Seen> seen_;
};

}  // namespace ddl
