#include "ddl/context.hpp"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <utility>

#include "collectives/communicator/probe.hpp"
#include "collectives/system/fail_agreed.hpp"
#include "ddl/context/calibration.hpp"
#include "ddl/context/connect.hpp"
#include "ddl/context/context_state.hpp"
#include "ddl/log.hpp"
#include "ddl/shared_buffer.hpp"

namespace ddl {

JobMembership::JobMembership(ContextOptions options_, std::unique_ptr<collectives::Bootstrap> bootstrap_,
                             std::shared_ptr<collectives::CommunicatorImpl> all_,
                             collectives::OpenedWatch watching_, std::unique_ptr<RunObserver> observer_)
    : options(std::move(options_)),
      log(all_->rank(), options.debug_level),
      fallbacks(log, options.strict),
      bootstrap(std::move(bootstrap_)),
      watching(std::move(watching_)),
      all(std::move(all_)),
      job(all->job_pointer()),
      observer(std::move(observer_)),
      timeline(observer ? observer->recorder() : nullptr),
      exceptions_at_start(std::uncaught_exceptions()) {
  job->on_new_plan(log_plans(log, fallbacks));
  for (const topology::Plan& plan : options.plans) {
    if (!is_for_hosts(plan)) log.info(fmt::format("for collectives on devices alone: {}", summary(plan)));
  }
}

/// Waits for all ranks before the connections close: a rank that closed its own while others still use theirs
/// would look as if it had died.
void JobMembership::meet_to_leave() {
  if (!bootstrap || job->failed() || job->engine().network_name().empty()) return;
  job->engine().drain();
  if (job->failed()) return;
  // Peers may still wait for data in this rank's network buffers.
  bootstrap->set_idle([this] { job->engine().progress(); });
  try {
    bootstrap->all_gather("");
  } catch (const Error&) {
    job->fail();
  }
  bootstrap->set_idle({});
}

JobMembership::~JobMembership() {
  const bool is_unwinding = std::uncaught_exceptions() > exceptions_at_start;
  if (observer && !is_unwinding && !job->failed()) observer->finish(*all, log);
  if (!is_unwinding) meet_to_leave();
  if (job->failed() || is_unwinding) {
    job->announce_failure("an exception has left its Context's scope");
    if (bootstrap) bootstrap->abandon();
  }
  job->close();
  if (job->failed() || is_unwinding) save_timeline_alone();
  if (watching.watch) watching.watch->leave();
}

Context context_of_all(std::shared_ptr<JobMembership> membership) {
  JobMembership& own = *membership;
  if (own.bootstrap) calibrate_plans(*own.bootstrap, *own.all, own.options, own.log);
  if (!own.options.save_topology.empty() && own.all->rank() == 0)
    save_topology(own.options, *own.all->plans().topology(), ".json", own.log);
  if (own.observer) own.observer->compare_clocks(*own.all);
  return Context(std::make_shared<ContextState>(std::move(membership), own.all, own.log));
}

Context::Context(std::shared_ptr<ContextState> state) noexcept : state_(std::move(state)) {}

Context Context::split(int color, int key) const {
  auto group = state_->impl->split(color, key);
  Log log = state_->membership->log.of_group(group->rank() == 0);
  return Context(std::make_shared<ContextState>(state_->membership, std::move(group), std::move(log)));
}

int Context::rank() const noexcept { return state_->impl->rank(); }
int Context::size() const noexcept { return state_->impl->size(); }
int Context::local_rank() const noexcept { return state_->impl->rank_map().local_rank(rank()); }
int Context::local_size() const noexcept {
  const topology::RankMap& map = state_->impl->rank_map();
  return static_cast<int>(map.ranks_of(map.host_of(rank())).size());
}
int Context::hosts() const noexcept { return state_->impl->rank_map().hosts(); }
bool Context::has_progress_thread() const noexcept { return engine_of(*this).has_thread(); }
const ContextOptions& Context::options() const noexcept { return state_->membership->options; }
std::shared_ptr<const topology::Topology> Context::topology() const {
  return state_->impl->plans().topology();
}
std::vector<std::string> Context::fallbacks() const { return state_->membership->fallbacks.all(); }
std::vector<topology::Measurement> Context::measure_ways() const {
  return collectives::probe(*state_->impl, *topology());
}
Communicator& Context::communicator() const noexcept { return state_->communicator; }
Log& Context::log() const noexcept { return state_->log; }
Timeline& Context::timeline() const noexcept { return state_->membership->timeline; }

SharedBuffer<std::byte> allocate_bytes(const Context& context, std::size_t bytes) {
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) {
    fail_with(ErrorCode::invalid_argument, "allocate: found {} bytes or more, which no memory can hold",
              bytes);
  }
  if (bytes == 0) return {};
  std::shared_ptr<void> memory = engine_of(context).allocate(bytes);
  if (!memory) {
    fail_with(ErrorCode::transport, "allocate: the system has no {} bytes of memory left for this rank",
              bytes);
  }
  return {std::move(memory), bytes};
}

std::string Context::broadcast_string(std::string_view text, int root) const {
  std::int64_t length = static_cast<std::int64_t>(text.size());
  communicator().broadcast(std::span(&length, 1), root);
  std::string result =
      rank() == root ? std::string(text) : std::string(static_cast<std::size_t>(length), '\0');
  communicator().broadcast(Elements(result.data(), result.size(), DataType::u8), root);
  return result;
}

void Fallbacks::add(const std::string& what) {
  require_none({what}, strict_);
  const std::lock_guard lock(mutex_);
  if (std::ranges::find(all_, what) != all_.end()) return log_.debug("again: " + what);
  all_.push_back(what);
  log_.warning(what);
}

std::vector<std::string> Fallbacks::all() const {
  const std::lock_guard lock(mutex_);
  return all_;
}

void Fallbacks::require_none(const std::vector<std::string>& found, bool strict) {
  if (!strict || found.empty()) return;
  fail_agreed(ErrorCode::unsupported,
              "DDL_STRICT=1, and there is no other way: {}. Mend that, or allow it (DDL_STRICT=0)",
              found.front());
}

collectives::PlanObserver log_plans(Log& log, Fallbacks& fallbacks) {
  return [&log, &fallbacks](const topology::Plan& plan, const std::vector<std::string>& notes) {
    for (const std::string& note : notes) fallbacks.add(note);
    if (!log.debug_enabled()) return log.info(fmt::format("plan: {}", summary(plan)));
    const std::string text = to_text(plan);
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      log.debug(fmt::format("{}{}", begin == 0 ? "plan: " : "", text.substr(begin, end - begin)));
      begin = end + 1;
    }
  };
}

Log::Log(int rank, int level)
    : logger_(std::make_shared<spdlog::logger>(std::to_string(rank),
                                               std::make_shared<spdlog::sinks::stderr_sink_mt>())),
      level_(level) {
  logger_->set_pattern("ddl [%n] %l: %v");
  logger_->set_level(rank == 0 ? spdlog::level::debug : spdlog::level::err);
}

Log Log::of_group(bool is_root) const {
  Log log = *this;
  log.logger_ = logger_->clone(logger_->name());
  log.logger_->set_level(is_root ? spdlog::level::debug : spdlog::level::err);
  return log;
}

void Log::error(std::string_view message) { logger_->error(message); }
void Log::warning(std::string_view message) { logger_->warn(message); }
void Log::notice(std::string_view message) { logger_->info(message); }
void Log::info(std::string_view message) {
  if (level_ >= 1) logger_->info(message);
}
void Log::debug(std::string_view message) {
  if (debug_enabled()) logger_->debug(message);
}
bool Log::debug_enabled() const noexcept { return level_ >= 2 && logger_->should_log(spdlog::level::debug); }

}  // namespace ddl
