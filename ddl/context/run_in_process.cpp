#include <cstdlib>
#include <exception>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "collectives/watch/watch.hpp"
#include "ddl/context/agreement.hpp"
#include "ddl/context/bootstrap_in_process.hpp"
#include "ddl/context/connect.hpp"
#include "ddl/context/context_state.hpp"
#include "ddl/context/host_identity.hpp"
#include "ddl/timeline/trace.hpp"
#include "topology/refuse.hpp"

namespace ddl {
namespace {

constexpr int most_threads = 1024;

void check(int ranks, const std::function<void(Context&)>& body, const InProcessOptions& options) {
  if (ranks < 1 || ranks > most_threads) {
    fail_with(ErrorCode::invalid_argument, "run_in_process: {} ranks, expected 1 to {}", ranks, most_threads);
  }
  if (!options.hosts.empty() && options.hosts.size() != as_index(ranks)) {
    fail_with(ErrorCode::invalid_argument,
              "run_in_process: {} host names for {} ranks, expected one each or none", options.hosts.size(),
              ranks);
  }
  if (!body) throw Error(ErrorCode::invalid_argument, "run_in_process: the body is empty");
}

topology::RankMap map_of(int ranks, const InProcessOptions& options) {
  if (!options.hosts.empty()) return topology::RankMap(options.hosts);
  const std::string& own = options.context.host_id;
  return topology::RankMap(std::vector(as_index(ranks), own.empty() ? host_identity() : own));
}

/// Applies DDL_DEADLINE if the program leaves the deadline at its default.
InProcessOptions with_deadline_of_environment(InProcessOptions options) {
  const bool is_default = options.context.deadline == ContextOptions().deadline;
  if (is_default && std::getenv("DDL_DEADLINE") != nullptr) {
    options.context.deadline = ContextOptions::from_environment().deadline;
  }
  return options;
}

}  // namespace

Context context_in_process(const ContextOptions& options, const topology::RankMap& map, int rank,
                           std::shared_ptr<collectives::PlanBook> plans, std::shared_ptr<InProcessJob> job,
                           std::shared_ptr<collectives::Watch> watch) {
  require_valid(options);
  const auto ranks = as_index(map.ranks());
  collectives::EngineSettings settings = engine_settings(rank, map, std::vector(ranks, usable_cores()));
  std::unique_ptr<InProcessBootstrap> bootstrap;
  if (job) {
    settings.memory = job->memory();
    settings.members.resize(ranks);
    std::iota(settings.members.begin(), settings.members.end(), 0);
    bootstrap = std::make_unique<InProcessBootstrap>(std::move(job), rank);
  }
  settings.watch = std::move(watch);
  auto observer =
      RunObserver::if_wanted(options, ranks > 1 && options.debug_level > 0, rank, settings.map, true);
  if (observer) settings.run = observer->recorder();
  auto first = first_communicator(options, std::move(settings), std::move(plans),
                                  collectives::Call::most_communicators);
  return context_of_all(std::make_shared<JobMembership>(options, std::move(bootstrap), std::move(first),
                                                        collectives::OpenedWatch(), std::move(observer)));
}

void run_in_process(int ranks, const std::function<void(Context&)>& body, const InProcessOptions& wanted) {
  check(ranks, body, wanted);
  const InProcessOptions options = with_deadline_of_environment(wanted);
  require_writable_trace(options.context.timeline);
  const topology::RankMap map = map_of(ranks, options);
  // All ranks share one plan book, so each plan is chosen once.
  const auto plans = plans_of(options.context, ranks, in_process_topology(options.context, map));
  if (!options.context.topology.empty()) plans->topology();  // throws for a bad topology before any rank runs
  const auto job = std::make_shared<InProcessJob>(ranks);
  std::vector<std::string> hosts;
  for (int rank = 0; rank < ranks; ++rank) hosts.push_back(map.short_name(map.host_of(rank)));
  const auto watches = collectives::thread_watches(hosts);

  // The exception that came first in time; later ones are mostly its consequences.
  std::mutex mutex;
  std::exception_ptr first;
  const auto keep = [&](const std::exception_ptr& exception) {
    const std::lock_guard lock(mutex);
    if (!first) first = exception;
  };
  const auto run_rank = [&](int rank) {
    const auto index = as_index(rank);
    ContextOptions own = options.context;
    if (!options.hosts.empty()) own.host_id = options.hosts[index];
    std::optional<Context> context;
    try {
      context = context_in_process(own, map, rank, plans, job, watches[index]);
    } catch (...) {
      keep(std::current_exception());
      job->give_up(rank);
      return;
    }
    const std::shared_ptr<collectives::Job> own_job = membership_of(*context).job;
    try {
      body(*context);
    } catch (...) {
      keep(std::current_exception());
      const Error error = as_error(std::current_exception());
      // All ranks throw an agreed error, so no other rank needs to be stopped.
      if (!error.agreed()) own_job->announce_failure(error.what());
    }
  };

  std::vector<std::thread> threads;
  threads.reserve(as_index(ranks));
  try {
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run_rank, rank);
  } catch (...) {
    keep(std::current_exception());
    job->give_up(static_cast<int>(threads.size()));
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace ddl
