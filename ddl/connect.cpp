#include "ddl/connect.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ddl/host_identity.hpp"

namespace ddl {
namespace {

collectives::AllReduceAlgorithm algorithm_for(const std::string& plan, const topology::RankMap& map) {
  using collectives::AllReduceAlgorithm;
  if (plan == "ring") return AllReduceAlgorithm::ring;
  if (plan == "hierarchical") return AllReduceAlgorithm::hierarchical;
  if (plan == "auto") return map.hosts() > 1 ? AllReduceAlgorithm::hierarchical : AllReduceAlgorithm::ring;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("ContextOptions::plan is '{}': expected auto, ring or hierarchical", plan));
}

}  // namespace

Neighbourhood meet(collectives::Bootstrap& bootstrap, const std::string& host_id) {
  const std::vector<std::string> machines = bootstrap.all_gather(machine_identity());
  const auto here =
      std::count(machines.begin(), machines.end(), machines[static_cast<std::size_t>(bootstrap.rank())]);
  return {bootstrap.all_gather(host_id.empty() ? host_identity() : host_id), here > usable_cores()};
}

collectives::CommunicatorSettings communicator_settings(const ContextOptions& options, int rank,
                                                        const Neighbourhood& neighbourhood) {
  if (options.deadline < std::chrono::milliseconds(1) ||
      options.deadline > std::chrono::seconds(1'000'000'000)) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("ContextOptions::deadline is {} ms: expected 1 ms to 1e9 s", options.deadline.count()));
  }
  constexpr int looks_before_yielding = 2000;
  collectives::CommunicatorSettings settings;
  settings.rank = rank;
  settings.map = topology::RankMap(neighbourhood.host_ids);
  settings.all_reduce = algorithm_for(options.plan, settings.map);
  settings.deadline = options.deadline;
  settings.spins = neighbourhood.crowded ? 0 : looks_before_yielding;
  return settings;
}

}  // namespace ddl
