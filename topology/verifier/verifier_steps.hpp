#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ddl/topology/schedule.hpp"

namespace ddl::topology::verification {

/// A step of any rank: ranks one after the other, each one's steps in list order.
using StepId = std::uint32_t;
constexpr StepId no_step = UINT32_MAX;

/// The steps of a schedule under one numbering. The schedule must outlive it.
class StepNumbers {
 public:
  /// The schedule must have fewer than `no_step` steps and 2^31 ranks.
  explicit StepNumbers(const Schedule& schedule);

  [[nodiscard]] const Schedule& schedule() const noexcept { return schedule_; }
  [[nodiscard]] StepId size() const noexcept { return begin_.back(); }
  [[nodiscard]] StepId id(int rank, std::size_t index) const {
    return begin_[static_cast<std::size_t>(rank)] + static_cast<StepId>(index);
  }
  [[nodiscard]] int rank(StepId id) const { return rank_[id]; }
  [[nodiscard]] std::uint32_t index(StepId id) const {
    return id - begin_[static_cast<std::size_t>(rank_[id])];
  }
  [[nodiscard]] const Step& operator[](StepId id) const {
    return schedule_.ranks[static_cast<std::size_t>(rank_[id])].steps[index(id)];
  }
  /// The first step of the run that a step is in, and the one after the run's last one.
  [[nodiscard]] StepId begin_of_run(StepId id) const {
    while ((*this)[id].joined) --id;
    return id;
  }
  [[nodiscard]] StepId end_of_run(StepId id) const {
    const StepId end = begin_[static_cast<std::size_t>(rank_[id]) + 1];
    do {
      ++id;
    } while (id < end && (*this)[id].joined);
    return id;
  }
  /// "rank 2, step 7 (send [0, 4) to 3)"
  [[nodiscard]] std::string name(StepId id) const;

 private:
  const Schedule& schedule_;
  std::vector<StepId> begin_;  // ranks + 1
  std::vector<std::int32_t> rank_;
};

}  // namespace ddl::topology::verification
