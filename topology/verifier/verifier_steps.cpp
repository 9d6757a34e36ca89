#include "topology/verifier/verifier_steps.hpp"

#include <fmt/format.h>

namespace ddl::topology::verification {

StepNumbers::StepNumbers(const Schedule& schedule) : schedule_(schedule) {
  begin_.reserve(schedule.ranks.size() + 1);
  begin_.push_back(0);
  for (const Program& program : schedule.ranks) {
    begin_.push_back(begin_.back() + static_cast<StepId>(program.steps.size()));
  }
  rank_.reserve(begin_.back());
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    rank_.insert(rank_.end(), schedule.ranks[rank].steps.size(), static_cast<std::int32_t>(rank));
  }
}

std::string StepNumbers::name(StepId id) const {
  return fmt::format("rank {}, step {} ({})", rank(id), index(id), to_string((*this)[id]));
}

}  // namespace ddl::topology::verification
