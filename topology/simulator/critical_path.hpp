#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "ddl/hash.hpp"
#include "ddl/topology/schedule.hpp"
#include "ddl/topology/simulator.hpp"
#include "topology/program/streams.hpp"

namespace ddl::topology {

/// The dependencies of all ranks' programs. Ranks with equal ones share them, e.g. in a ring.
class SharedDependencies {
 public:
  explicit SharedDependencies(const Schedule& schedule) {
    for (const Program& program : schedule.ranks) {
      const auto number = static_cast<std::uint32_t>(numbers_.size());
      of_rank_.push_back(&*numbers_.try_emplace(Dependencies(program), number).first);
    }
  }

  [[nodiscard]] const Dependencies& of(int rank) const { return entry(rank).first; }
  /// Below `tables`; equal for ranks that share dependencies.
  [[nodiscard]] std::uint32_t table(int rank) const { return entry(rank).second; }
  [[nodiscard]] std::size_t tables() const noexcept { return numbers_.size(); }

 private:
  struct Hash {
    std::size_t operator()(const Dependencies& dependencies) const {
      Fnv hash;
      for (std::size_t step = 0; step < dependencies.steps(); ++step) {
        for (const std::uint32_t later : dependencies.after(step)) hash.add(later);
        hash.add(UINT32_MAX);
      }
      return hash.value();
    }
  };
  using Numbers = std::unordered_map<Dependencies, std::uint32_t, Hash>;

  [[nodiscard]] const Numbers::value_type& entry(int rank) const { return *of_rank_[as_index(rank)]; }

  Numbers numbers_;
  std::vector<const Numbers::value_type*> of_rank_;
};

/// The chain of events that ends last, in order: each starts when the one before it ends. `start` and `end`
/// are the times of all steps, `joined` the times at which ranks join. Causes are found by equal times.
///
/// A send that only kept its rank from issuing the next one counts until the end of its issue.
std::vector<SimulatedEvent> critical_path(const StepNumbers& steps, const Streams& streams,
                                          const SharedDependencies& dependencies,
                                          std::span<const double> start, std::span<const double> end,
                                          std::span<const double> joined);

}  // namespace ddl::topology
