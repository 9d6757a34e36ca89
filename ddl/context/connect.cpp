#include "ddl/context/connect.hpp"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "collectives/communicator/job_topology.hpp"
#include "ddl/checkpoint.hpp"
#include "ddl/context/host_identity.hpp"
#include "ddl/files/durable_file.hpp"
#include "topology/refuse.hpp"
#include "topology/text.hpp"
#ifdef DDL_HAVE_UCX
#include "collectives/transports/network/ucx_network.hpp"
#endif

namespace ddl {

std::optional<topology::Topology> topology_of_preset(std::string_view what, const std::string& name) {
  const std::string_view preset = std::string_view(name).substr(0, name.find(':'));
  std::vector<std::string_view> presets;
  for (const topology::Preset& candidate : topology::presets()) presets.push_back(candidate.name);
  if (std::ranges::find(presets, preset) != presets.end()) return topology::make_preset(name);
  std::error_code ignored;
  if (std::filesystem::exists(name, ignored)) return std::nullopt;
  fail_with(ErrorCode::invalid_argument,
            "{}: found '{}', which is no file, expected one or a preset's name; the nearest preset is '{}' "
            "(ddl-topo presets lists all)",
            what, name, nearest_name(preset, presets));
}

topology::Topology topology_by_name(const std::string& name) {
  constexpr std::uint64_t largest_file = std::uint64_t{256} << 20;
  if (auto preset = topology_of_preset("DDL_TOPOLOGY", name)) return *std::move(preset);
  const std::string text = read_file(name, largest_file, "a topology");
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  if (start != std::string::npos && text[start] == '<') {
    return topology::topology_from_nccl_xml(std::span(&text, 1), std::span(&name, 1));
  }
  return topology::topology_from_json(text, name);
}

void save_topology(const ContextOptions& options, const topology::Topology& topology, std::string_view suffix,
                   Log& log) {
  if (options.save_topology.empty()) return;
  try {
    const std::string path = fmt::format("{}{}", options.save_topology, suffix);
    write_file_atomically(path, to_json(topology));
    log.info(fmt::format("topology: {}", path));
  } catch (const Error& error) {
    log.warning(fmt::format("the topology is not written (DDL_SAVE_TOPOLOGY): {}", error.what()));
  }
}

OpenedNetwork open_network(ProcessBootstrap& bootstrap, NetworkUse use) {
  OpenedNetwork opened;
  if (use != NetworkUse::mpi) {
#ifdef DDL_HAVE_UCX
    opened.network = collectives::open_ucx(bootstrap, opened.reason);
#else
    opened.reason = "this build is without UCX (CMake option DDL_WITH_UCX)";
#endif
    if (opened.network != nullptr) return opened;
    if (use == NetworkUse::ucx) {
      fail_with(ErrorCode::transport,
                "DDL_NETWORK=ucx is not possible: {}. UCX_NET_DEVICES chooses network interfaces, "
                "UCX_LOG_LEVEL=info says more; DDL_NETWORK=mpi does without UCX",
                opened.reason);
    }
  }
  opened.network = bootstrap.make_mpi_network();
  return opened;
}

std::shared_ptr<collectives::PlanBook> plans_of(const ContextOptions& options, int ranks, FindTopology find) {
  collectives::PlanWishes wishes{options.mode, std::nullopt, options.plans};
  if (!options.decomposition.empty()) {
    try {
      wishes.decomposition = topology::Decomposition::parse(options.decomposition, ranks);
    } catch (const Error& error) {
      fail_with(ErrorCode::invalid_argument, "-mode {}:{} (DDL_OPTIONS): invalid dim size: {}",
                letter_of(options.mode), options.decomposition, error.what());
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
    fail_with(ErrorCode::invalid_argument, "ContextOptions::deadline is {} ms: expected 1 ms to 1e9 s",
              options.deadline.count());
  }
}

collectives::EngineSettings engine_settings(int rank, topology::RankMap map,
                                            const std::vector<std::string>& masks) {
  constexpr int many = 10'000;
  constexpr int few = 100;
  collectives::EngineSettings settings;
  settings.rank = rank;
  settings.map = std::move(map);
  settings.spins = are_crowded(masks) ? 0 : many;
  // Without a second core for each rank, the engine's thread takes the core on which its rank computes.
  settings.spins_beside_caller = cores_in(masks) < 2 * masks.size() ? std::min(settings.spins, few) : many;
  return settings;
}

std::shared_ptr<collectives::CommunicatorImpl> first_communicator(
    const ContextOptions& options, collectives::EngineSettings settings,
    std::shared_ptr<collectives::PlanBook> plans, int most_communicators) {
  collectives::CommunicatorSettings first;
  first.rank = settings.rank;
  first.map = settings.map;
  first.members.resize(as_index(settings.map.ranks()));
  std::iota(first.members.begin(), first.members.end(), 0);
  first.plans = std::move(plans);
  auto job = std::make_shared<collectives::Job>(std::make_shared<collectives::Engine>(std::move(settings)),
                                                options.deadline, most_communicators);
  if (options.reproducible) {
    for (std::size_t i = 0; i < collectives::ReproducibleReductions::lanes; ++i) {
      const int number = job->proposed_number(0);  // the same on all ranks, because these are the first
      static_cast<void>(job->take_number(number));
      first.lanes.push_back(number);
    }
  }
  return std::make_shared<collectives::CommunicatorImpl>(std::move(job), std::move(first));
}

}  // namespace ddl
