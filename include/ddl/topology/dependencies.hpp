#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ddl/topology/schedule.hpp"

namespace ddl::topology {

/// Which steps of a program must be complete before each may start: the earlier ones that touch the same
/// memory, one of the two writing. Only the last of a chain is listed: a step depends on what its
/// predecessors depend on. The order of a stream (see `Program`) is not in here.
///
/// Any program is taken; ranges that are empty or wrap around touch nothing.
/// O(S log S) for S steps whose ranges nest or tile, as those of lowerings do. Immutable; any thread.
class Dependencies {
 public:
  explicit Dependencies(const Program& program);

  [[nodiscard]] std::size_t steps() const noexcept { return before_.size(); }
  /// How many steps `after` lists this one for.
  [[nodiscard]] std::uint32_t number_before(std::size_t step) const { return before_[step]; }
  /// The later steps that wait for this one, ascending.
  [[nodiscard]] std::span<const std::uint32_t> after(std::size_t step) const {
    return std::span(after_).subspan(begin_[step], begin_[step + 1] - begin_[step]);
  }
  friend bool operator==(const Dependencies&, const Dependencies&) = default;

 private:
  std::vector<std::uint32_t> before_;
  std::vector<std::uint32_t> begin_;  // steps + 1 positions in after_
  std::vector<std::uint32_t> after_;
};

}  // namespace ddl::topology
