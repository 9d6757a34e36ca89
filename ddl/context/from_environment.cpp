#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/communicator/job_topology.hpp"
#include "collectives/system/fail_agreed.hpp"
#include "collectives/transports/shared_memory/host_memory.hpp"
#include "ddl/context/connect.hpp"
#include "ddl/context/context_state.hpp"
#include "ddl/context/failure_files.hpp"
#include "ddl/context/host_identity.hpp"
#include "ddl/context/process_bootstrap.hpp"
#include "ddl/context/signals.hpp"
#include "ddl/options/option_table.hpp"
#include "ddl/timeline/trace.hpp"
#include "ddl/topology/program.hpp"
#include "topology/program/passes.hpp"
#ifdef DDL_HAVE_MPI
#include "ddl/context/bootstrap_mpi.hpp"
#endif

namespace ddl {

using nlohmann::json;

/// The options of a job, or the error of reading them, which all ranks throw once they are connected.
struct GivenOptions {
  explicit GivenOptions(const std::function<ContextOptions()>& read) {
    try {
      ContextOptions given = read();
      require_valid(given);
      options = std::move(given);
    } catch (const Error& found) {
      error = found;
    }
  }

  ContextOptions options;
  std::optional<Error> error;
};

namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;

/// Names and values of settings that must be the same on all ranks: with different plans they would hang.
Settings shared_settings(const ContextOptions& options) {
  std::vector<std::string> plans;
  for (const topology::Plan& plan : options.plans)
    plans.push_back(fmt::format("{:016x}", topology::hash(plan)));
  Settings settings{{"DDL_PLAN's hash", fmt::format("{}", fmt::join(plans, ","))}};
  for (const std::string_view name :
       {"mode", "topology", "network", "dump_iterations", "timeline", "strict", "reproducible", "probe"}) {
    const Option& option = *std::ranges::find(all_options(), name, &Option::name);
    settings.emplace_back(option.variable.empty() ? fmt::format("{} in DDL_OPTIONS", option.word)
                                                  : std::string(option.variable),
                          option.value.get(options));
  }
  return settings;
}

void require_same_settings(const std::vector<json>& ranks) {
  const auto first = ranks[0].at("settings").get<Settings>();
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto own = ranks[rank].at("settings").get<Settings>();
    const auto [expected, found] = std::ranges::mismatch(first, own);
    if (found == own.end()) continue;
    fail_agreed(ErrorCode::mismatch, "{} is '{}' on rank 0 and '{}' on rank {}: set it alike on all ranks",
                found->first, expected->second, found->second, rank);
  }
}

/// Results of the ranks' first exchange.
struct Meeting {
  topology::RankMap map;
  std::vector<std::string> cores_here;  ///< `usable_cores` of each rank of this rank's machine.
  bool
      summary;  ///< Whether the job ends with a summary, in which all ranks take part; rank 0's level counts.
};

/// Exchanges settings and hosts. Throws, on every rank, the lowest failing rank's error in its settings.
Meeting meet(collectives::Bootstrap& bootstrap, const GivenOptions& given) {
  const ContextOptions& options = given.options;
  std::optional<Error> error = given.error;
  try {
    plans_of(options, bootstrap.size(), {});
    if (bootstrap.rank() == 0) require_writable_trace(options.timeline);
  } catch (const Error& found) {
    if (!error) error = found;
  }
  const std::string machine = machine_identity();
  const json own = {{"complaint", error ? error->what() : ""},
                    {"settings", shared_settings(options)},
                    {"machine", machine},
                    {"cores", usable_cores()},
                    {"host", options.host_id.empty() ? host_identity() : options.host_id},
                    {"summary", options.debug_level > 0}};
  std::string packed;
  json::to_cbor(own, packed);  // JSON text cannot hold all bytes that names may contain
  std::vector<json> ranks;
  for (const std::string& text : bootstrap.all_gather(packed)) ranks.push_back(json::from_cbor(text));
  std::vector<std::string> hosts;
  std::vector<std::string> cores_here;
  for (const json& rank : ranks) {
    const std::string complaint = rank.at("complaint");
    if (!complaint.empty()) throw Error(ErrorCode::invalid_argument, complaint).as_agreed();
    hosts.push_back(rank.at("host"));
    if (rank.at("machine") == machine) cores_here.push_back(rank.at("cores"));
  }
  require_same_settings(ranks);
  return {topology::RankMap(hosts), cores_here, ranks.size() > 1 && ranks[0].at("summary")};
}

collectives::JobTopology find_topology(collectives::Bootstrap& bootstrap, const topology::RankMap& map,
                                       const ContextOptions& options) {
  if (!options.topology.empty()) {
    return share_topology(bootstrap, [&] { return topology_by_name(options.topology); });
  }
  return discover_job(bootstrap, map, [] { return topology::discover_host(); });
}

void require_devices(const topology::Topology& topology, int ranks) {
  try {
    collectives::require_devices(topology, ranks);
  } catch (const Error& error) {
    throw error.as_agreed();  // all ranks have the same topology
  }
}

bool may_want_mpi_alone(const ContextOptions& options) {
  return options.mode == topology::Mode::mpi || std::ranges::any_of(options.plans, topology::is_by_mpi_alone);
}

collectives::OpenedWatch start_watch(collectives::Bootstrap& bootstrap, const topology::RankMap& map,
                                     const std::shared_ptr<const FailureFiles>& files) {
  if (map.ranks() == 1) return {};
  collectives::WatchSettings settings;
  settings.host = map.short_name(map.host_of(bootstrap.rank()));
  settings.warn = [](const std::string& text) { Log(0, 0).warning(text); };
  settings.on_report = [files](const collectives::ExitReport& report) { files->write(report); };
  settings.on_lonely_report = [files](const collectives::ExitReport& report) { files->print(report); };
  collectives::OpenedWatch opened = open_watch(bootstrap, std::move(settings));
  if (const int event = flight_dump_event(); opened.watch && event >= 0) {
    opened.watch->dump_on(event, [files](const auto& records) { files->dump(records); });
  }
  return opened;
}

void add_neighbours(const collectives::OpenedWatch& watching, int rank,
                    const collectives::EngineSettings& settings) {
  if (!watching.watch) return;
  for (std::size_t i = 0; i < settings.members.size(); ++i) {
    if (settings.members[i] == rank) continue;
    watching.watch->add_neighbour(settings.members[i], settings.memory->tape(static_cast<int>(i)));
  }
}

/// Shared memory and networks between the ranks.
struct Connections {
  collectives::HostMemories memories;
  OpenedNetwork opened;
  std::unique_ptr<collectives::Network> mpi;

  /// The number of communicators that the networks can tell apart.
  [[nodiscard]] int most_communicators() const {
    int most = collectives::Call::most_channels;
    for (const collectives::Network* network : {opened.network.get(), mpi.get()}) {
      if (network != nullptr) most = std::min(most, network->communicators());
    }
    return most / collectives::Call::channels_each;
  }
};

Connections open_connections(ProcessBootstrap& bootstrap, const topology::RankMap& map,
                             const ContextOptions& options) {
  Connections result;
  if (map.ranks() == 1) return result;
  result.memories = open_host_memory(bootstrap, map);
  const auto has_obstacle = [](const std::string& obstacle) { return !obstacle.empty(); };
  if (map.hosts() > 1 || std::ranges::any_of(result.memories.obstacles, has_obstacle)) {
    result.opened = open_network(bootstrap, options.network);
  }
  if (may_want_mpi_alone(options)) result.mpi = bootstrap.make_mpi_network();
  return result;
}

/// Descriptions of all fallbacks during start-up; the same on all ranks.
std::vector<std::string> fallbacks_of(const Connections& connections, const topology::RankMap& map,
                                      const collectives::JobTopology& job, const std::string& unwatched) {
  std::vector<std::string> found;
  const std::vector<std::string>& obstacles = connections.memories.obstacles;
  for (std::size_t host = 0; host < obstacles.size(); ++host) {
    if (obstacles[host].empty()) continue;
    found.push_back(fmt::format("the {} ranks of host {} cannot share memory and use the network instead: {}",
                                map.ranks_of(static_cast<int>(host)).size(),
                                map.short_name(static_cast<int>(host)), obstacles[host]));
  }
  if (const std::string& reason = connections.opened.reason; !reason.empty()) {
    found.push_back(
        fmt::format("the network is {} and not UCX: {}", connections.opened.network->name(), reason));
  }
  found.insert(found.end(), job.warnings.begin(), job.warnings.end());
  if (!unwatched.empty()) {
    found.push_back(
        fmt::format("ranks' deaths are noticed by broken connections and deadlines alone: {}", unwatched));
  }
  return found;
}

void log_connections(Log& log, const std::string& network, const topology::RankMap& map,
                     const ContextOptions& options, const collectives::JobTopology& job) {
  if (!network.empty()) log.info(fmt::format("network: {}", network));
  for (const std::string& note : job.notes) log.debug(note);
  const auto counted = [](std::size_t count, const char* what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
  };
  log.info(fmt::format("{} on {}, mode {}, topology {} with {} on {}, hash {:016x}",
                       counted(as_index(map.ranks()), "rank"), counted(as_index(map.hosts()), "host"),
                       letter_of(options.mode), options.topology.empty() ? "discovered" : options.topology,
                       counted(job.topology->devices().size(), "device"),
                       counted(job.topology->hosts().size(), "host"), job.topology->hash()));
  if (!collectives::has_same_hosts(*job.topology, map)) {
    log.info("the topology groups the ranks into other hosts than they are on: plans follow the topology");
  }
}

// Called with an error of start-up while the bootstrap still exists, before the other ranks are left.
using Report = std::function<void(const Error&)>;

/// `rank` is set as soon as it is known.
Context connect_processes(std::unique_ptr<ProcessBootstrap> bootstrap, const GivenOptions& given, int& rank,
                          const Report& report) {
  rank = bootstrap->rank();
  const ContextOptions& options = given.options;
  collectives::OpenedWatch watching;
  try {
    const auto [map, cores_here, summary] = meet(*bootstrap, given);
    collectives::EngineSettings settings = engine_settings(rank, map, cores_here);
    const auto files =
        std::make_shared<FailureFiles>(options.report, rank, map.short_name(map.host_of(rank)));
    watching = start_watch(*bootstrap, map, files);
    bootstrap->set_watch(watching.watch);
    settings.watch = watching.watch;
    settings.on_failure = [files](const auto& records) { files->write(records); };
    const collectives::JobTopology job = find_topology(*bootstrap, map, options);
    require_devices(*job.topology, map.ranks());
    auto observer = RunObserver::if_wanted(options, summary, rank, map, false);
    if (observer) settings.run = observer->recorder();
    auto plans = plans_of(options, map.ranks(), [topology = job.topology] { return topology; });
    Connections connections = open_connections(*bootstrap, map, options);
    const std::vector<std::string> fallbacks = fallbacks_of(connections, map, job, watching.reason);
    Fallbacks::require_none(fallbacks, options.strict);
    const int most_communicators = connections.most_communicators();
    settings.memory = connections.memories.own;
    if (settings.memory) {
      settings.members = map.ranks_of(map.host_of(rank));
      add_neighbours(watching, rank, settings);
    }
    settings.network = std::move(connections.opened.network);
    settings.mpi = std::move(connections.mpi);
    auto first = first_communicator(options, std::move(settings), std::move(plans), most_communicators);
    auto membership = std::make_shared<JobMembership>(options, std::move(bootstrap), std::move(first),
                                                      std::move(watching), std::move(observer));
    for (const std::string& fallback : fallbacks) membership->fallbacks.add(fallback);
    if (options.rebind_iterations > 0) {
      membership->log.notice(
          "-rebind_iter has no effect: plans are chosen once, so that a resumed run has the same bits");
    }
    log_connections(membership->log, membership->job->engine().network_name(), map, options, job);
    if (are_crowded(cores_here)) {
      membership->log.info(fmt::format("{} ranks share {} core{} of this host and take turns to compute",
                                       cores_here.size(), cores_in(cores_here),
                                       cores_in(cores_here) == 1 ? "" : "s"));
    }
    return context_of_all(std::move(membership));
  } catch (const Error& error) {
    if (report) report(error);
    // MPI_Finalize would wait for ranks that do not know of the failure.
    if (!error.agreed() && bootstrap) bootstrap->abandon();
    if (!error.agreed() && watching.watch) {
      watching.watch->announce({collectives::JobFailure::Kind::threw, rank,
                                fmt::format("rank {} could not start: {}", rank, error.what()), 0, 0});
    }
    throw;
  }
}

Context alone(const ContextOptions& options) {
  require_writable_trace(options.timeline);
  const topology::RankMap map({options.host_id.empty() ? "localhost" : options.host_id});
  auto plans = plans_of(options, 1, in_process_topology(options, map));
  return context_in_process(options, map, 0, std::move(plans), nullptr, nullptr);
}

Context connect(const std::function<ContextOptions()>& read_options, int& rank, const Report& report) {
  const GivenOptions given(read_options);
#ifdef DDL_HAVE_MPI
  if (MpiBootstrap::is_present()) {
    return connect_processes(std::make_unique<MpiBootstrap>(given.options.deadline), given, rank, report);
  }
#else
  if (const char* size = std::getenv("OMPI_COMM_WORLD_SIZE");
      size != nullptr && std::string_view(size) != "1") {
    fail_with(ErrorCode::unsupported,
              "mpirun started {} processes, but this build of ddl has no MPI: build it with "
              "-DDDL_WITH_MPI=ON",
              size);
  }
#endif
  if (is_socket_job()) {
    rank = socket_rank();
    return connect_processes(join_by_socket(given.options.deadline), given, rank, report);
  }
  if (given.error) throw *given.error;
  return alone(given.options);
}

}  // namespace

Context Context::from_environment() {
  int rank = 0;
  return connect([] { return ContextOptions::from_environment(); }, rank, {});
}

Context Context::from_environment(const ContextOptions& options) {
  int rank = 0;
  return connect([&] { return options; }, rank, {});
}

Context Context::from_mpi(const void* communicator, const ContextOptions& options) {
#ifdef DDL_HAVE_MPI
  int rank = 0;
  const GivenOptions given([&] { return options; });
  return connect_processes(
      std::make_unique<MpiBootstrap>(given.options.deadline, *static_cast<const MPI_Comm*>(communicator)),
      given, rank, {});
#else
  static_cast<void>(communicator);
  static_cast<void>(options);
  throw Error(ErrorCode::unsupported, "this build of ddl has no MPI: build it with -DDDL_WITH_MPI=ON");
#endif
}

int Context::run_from_environment(const std::function<int(Context&)>& body) {
  int rank = 0;
  bool is_reported = false;
  // Prints before the bootstrap is destroyed: after MPI_Finalize, mpirun ends all ranks as soon as one exits
  // with an error.
  const Report report = [&](const Error& error) {
    if (rank == 0 || !error.agreed()) Log(rank, 0).error(error.what());
    is_reported = true;
  };
  std::optional<Context> context;
  try {
    context = connect([] { return ContextOptions::from_environment(); }, rank, report);
  } catch (const Error& error) {
    if (!is_reported) report(error);
    return error.code() == ErrorCode::invalid_argument ? 2 : 1;
  }
  return context->run([&] { return body(*context); });
}

}  // namespace ddl
