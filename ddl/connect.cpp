#include "ddl/connect.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "collectives/job_topology.hpp"
#include "ddl/host_identity.hpp"
#include "ddl/named_topology.hpp"

namespace ddl {

Neighbourhood meet(collectives::Bootstrap& bootstrap, const std::string& host_id) {
  const std::vector<std::string> machines = bootstrap.all_gather(machine_identity());
  const std::vector<std::string> cores = bootstrap.all_gather(usable_cores());
  std::vector<std::string> cores_here;
  for (std::size_t rank = 0; rank < machines.size(); ++rank) {
    if (machines[rank] == machines[static_cast<std::size_t>(bootstrap.rank())]) {
      cores_here.push_back(cores[rank]);
    }
  }
  return {bootstrap.all_gather(host_id.empty() ? host_identity() : host_id), are_crowded(cores_here)};
}

std::shared_ptr<collectives::PlanBook> plans_of(const ContextOptions& options, int ranks, FindTopology find) {
  collectives::PlanWishes wishes{options.mode, std::nullopt, options.plans};
  if (!options.decomposition.empty()) {
    try {
      wishes.decomposition = topology::Decomposition::parse(options.decomposition, ranks);
    } catch (const Error& error) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("-mode {}:{} (DDL_OPTIONS): invalid dim size: {}", letter_of(options.mode),
                              options.decomposition, error.what()));
    }
  }
  return std::make_shared<collectives::PlanBook>(ranks, std::move(find), std::move(wishes));
}

FindTopology in_process_topology(const ContextOptions& options, const topology::RankMap& map) {
  return [name = options.topology, map] {
    if (!name.empty()) return std::make_shared<const topology::Topology>(topology_by_name(name));
    return collectives::discover_in_process(map, [] { return topology::discover_host(); }).topology;
  };
}

void require_valid(const ContextOptions& options) {
  if (options.deadline < std::chrono::milliseconds(1) ||
      options.deadline > std::chrono::seconds(1'000'000'000)) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("ContextOptions::deadline is {} ms: expected 1 ms to 1e9 s", options.deadline.count()));
  }
}

collectives::EngineSettings engine_settings(int rank, const Neighbourhood& neighbourhood) {
  constexpr int looks_before_sleep = 10'000;
  collectives::EngineSettings settings;
  settings.rank = rank;
  settings.map = topology::RankMap(neighbourhood.host_ids);
  settings.spins = neighbourhood.crowded ? 0 : looks_before_sleep;
  return settings;
}

std::shared_ptr<collectives::CommunicatorImpl> first_communicator(
    const ContextOptions& options, collectives::EngineSettings settings,
    std::shared_ptr<collectives::PlanBook> plans, int most_communicators) {
  collectives::CommunicatorSettings first;
  first.rank = settings.rank;
  first.map = settings.map;
  first.members.resize(static_cast<std::size_t>(settings.map.ranks()));
  std::iota(first.members.begin(), first.members.end(), 0);
  first.plans = std::move(plans);
  auto job = std::make_shared<collectives::Job>(std::make_shared<collectives::Engine>(std::move(settings)),
                                                options.deadline, most_communicators);
  if (options.reproducible) {
    for (std::size_t i = 0; i < collectives::ReproducibleReductions::lanes; ++i) {
      const int number = job->proposed_number(0);  // the same on all ranks: nobody else has asked
      static_cast<void>(job->take_number(number));
      first.lanes.push_back(number);
    }
  }
  return std::make_shared<collectives::CommunicatorImpl>(std::move(job), std::move(first));
}

}  // namespace ddl
