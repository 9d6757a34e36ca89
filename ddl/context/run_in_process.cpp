#include <fmt/format.h>

#include <cstdlib>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "collectives/watch/watch.hpp"
#include "ddl/context/bootstrap_in_process.hpp"
#include "ddl/context/calibration.hpp"
#include "ddl/context/connect.hpp"
#include "ddl/context/context_state.hpp"
#include "ddl/context/host_identity.hpp"
#include "ddl/timeline/trace.hpp"

namespace ddl {
namespace {

constexpr int most_ranks = 1024;

/// The exception that came first in time: the ones after it are mostly its consequences.
class FirstException {
 public:
  void keep(const std::exception_ptr& exception) {
    const std::lock_guard lock(mutex_);
    if (!exception_) exception_ = exception;
  }
  void rethrow() const {
    if (exception_) std::rethrow_exception(exception_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr exception_;
};

bool is_agreed(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    return error.agreed();
  } catch (...) {
    return false;
  }
}

void check(int ranks, const std::function<void(Context&)>& body, const InProcessOptions& options) {
  if (ranks < 1 || ranks > most_ranks) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("run_in_process: {} ranks, expected 1 to {}", ranks, most_ranks));
  }
  if (!options.hosts.empty() && options.hosts.size() != static_cast<std::size_t>(ranks)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("run_in_process: {} host names for {} ranks, expected one each or none",
                            options.hosts.size(), ranks));
  }
  if (!body) throw Error(ErrorCode::invalid_argument, "run_in_process: the body is empty");
}

std::string text_of(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception that is not a std::exception was thrown";
  }
}

/// By rank.
std::vector<std::string> host_names(int ranks, const InProcessOptions& options) {
  if (!options.hosts.empty()) return options.hosts;
  const std::string& own = options.context.host_id;
  return std::vector<std::string>(static_cast<std::size_t>(ranks), own.empty() ? host_identity() : own);
}

/// DDL_DEADLINE counts where the program leaves the deadline at its default.
InProcessOptions with_deadline_of_environment(InProcessOptions options) {
  const bool is_default = options.context.deadline == ContextOptions().deadline;
  if (is_default && std::getenv("DDL_DEADLINE") != nullptr) {
    options.context.deadline = ContextOptions::from_environment().deadline;
  }
  return options;
}

/// All ranks share one book, so each plan is chosen once.
std::shared_ptr<collectives::PlanBook> plans_for(int ranks, const InProcessOptions& options) {
  auto plans = plans_of(options.context, ranks,
                        in_process_topology(options.context, topology::RankMap(host_names(ranks, options))));
  if (!options.context.topology.empty()) plans->topology();  // a wrong one is found before anything runs
  return plans;
}

}  // namespace

void run_in_process(int ranks, const std::function<void(Context&)>& body, const InProcessOptions& wanted) {
  check(ranks, body, wanted);
  const InProcessOptions options = with_deadline_of_environment(wanted);
  require_writable_trace(options.context.timeline);
  const auto plans = plans_for(ranks, options);
  const auto job = std::make_shared<InProcessJob>(ranks);
  const topology::RankMap map(host_names(ranks, options));
  std::vector<std::string> hosts;
  for (int rank = 0; rank < ranks; ++rank) hosts.push_back(map.short_name(map.host_of(rank)));
  const auto watches = collectives::thread_watches(hosts);
  FirstException first;

  const auto connect = [&](int rank) {
    ContextOptions own = options.context;
    if (!options.hosts.empty()) own.host_id = options.hosts[static_cast<std::size_t>(rank)];
    auto bootstrap = std::make_unique<InProcessBootstrap>(job, rank);
    const Neighbourhood neighbourhood = meet(*bootstrap, own.host_id);
    require_valid(own);
    collectives::EngineSettings settings = engine_settings(rank, neighbourhood);
    settings.memory = job->memory();
    settings.members.resize(static_cast<std::size_t>(ranks));
    std::iota(settings.members.begin(), settings.members.end(), 0);
    const bool summary = ranks > 1 && own.debug_level > 0;
    auto observer = RunObserver::if_wanted(own, summary, rank, settings.map, true);
    if (observer) settings.run = observer->recorder();
    settings.watch = watches[static_cast<std::size_t>(rank)];
    const auto impl =
        first_communicator(own, std::move(settings), plans, collectives::Call::most_communicators);
    auto state = std::make_unique<Context::State>(std::move(own), std::move(bootstrap), impl,
                                                  collectives::OpenedWatch(), std::move(observer));
    calibrate_plans(*state->bootstrap, *state->impl, state->options, state->log);
    state->save_topology();
    if (state->observer) state->observer->compare_clocks(*state->impl);
    return state;
  };
  const auto run_rank = [&](int rank) {
    std::unique_ptr<Context::State> state;
    try {
      state = connect(rank);
    } catch (...) {
      first.keep(std::current_exception());
      job->give_up(rank);
      return;
    }
    const std::shared_ptr<collectives::Job> own_job = state->job;
    Context context(std::move(state));
    try {
      body(context);
    } catch (...) {
      first.keep(std::current_exception());
      // All ranks throw an agreed error, so nobody needs to be stopped on its account.
      if (!is_agreed(std::current_exception())) own_job->announce_failure(text_of(std::current_exception()));
    }
  };

  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(ranks));
  try {
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run_rank, rank);
  } catch (...) {
    first.keep(std::current_exception());
    job->give_up(static_cast<int>(threads.size()));
  }
  for (std::thread& thread : threads) thread.join();
  first.rethrow();
}

}  // namespace ddl
