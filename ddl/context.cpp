#include "ddl/context.hpp"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "collectives/probe.hpp"
#include "ddl/context_state.hpp"
#include "ddl/log.hpp"
#include "ddl/named_topology.hpp"
#include "ddl/plan_log.hpp"

namespace ddl {

Context::State::State(ContextOptions options_, std::unique_ptr<collectives::Bootstrap> bootstrap_,
                      std::shared_ptr<collectives::CommunicatorImpl> first,
                      collectives::OpenedWatch watching_, std::unique_ptr<RunObserver> observer_)
    : options(std::move(options_)),
      log(first->rank(), options.debug_level),
      fallbacks(log, options.strict),
      bootstrap(std::move(bootstrap_)),
      watching(std::move(watching_)),
      impl(std::move(first)),
      job(impl->job_pointer()),
      communicator(impl),
      observer(std::move(observer_)),
      timeline(observer ? observer->recorder() : nullptr),
      exceptions_at_start(std::uncaught_exceptions()) {
  job->on_new_plan(log_plans(log, fallbacks));
  for (const topology::Plan& plan : options.plans) {
    if (!is_for_hosts(plan)) log.info(fmt::format("for collectives on devices alone: {}", summary(plan)));
  }
}

void Context::State::save_topology() {
  if (options.save_topology.empty() || impl->rank() != 0) return;
  ddl::save_topology(options, *impl->plans().topology(), ".json", log);
}

/// A rank that closed its connections while others still used theirs would look as if it had died.
void Context::State::meet_to_leave() {
  if (!bootstrap || job->failed() || job->engine().network_name().empty()) return;
  job->engine().drain();
  if (job->failed()) return;
  // What this rank has sent may still be in its network's buffers.
  bootstrap->set_idle([this] { job->engine().progress(); });
  try {
    bootstrap->all_gather("");
  } catch (const Error&) {
    job->fail();
  }
  bootstrap->set_idle({});
}

Context::State::~State() {
  const bool is_unwinding = std::uncaught_exceptions() > exceptions_at_start;
  if (observer && !is_unwinding && !job->failed()) observer->finish(*impl, log);
  if (!is_unwinding) meet_to_leave();
  if (job->failed() || is_unwinding) {
    job->announce_failure("an exception has left its Context's scope");
    if (bootstrap) bootstrap->abandon();
  }
  job->close();
  if (job->failed() || is_unwinding) save_timeline_alone();
  if (watching.watch) watching.watch->leave();
}

Context::Context(std::unique_ptr<State> state) : state_(std::move(state)) {}
Context::Context(Context&&) noexcept = default;
Context& Context::operator=(Context&&) noexcept = default;
Context::~Context() = default;

int Context::rank() const noexcept { return state_->impl->rank(); }
int Context::size() const noexcept { return state_->impl->size(); }
int Context::local_rank() const noexcept { return state_->impl->rank_map().local_rank(rank()); }
int Context::local_size() const noexcept {
  const topology::RankMap& map = state_->impl->rank_map();
  return static_cast<int>(map.ranks_of(map.host_of(rank())).size());
}
int Context::hosts() const noexcept { return state_->impl->rank_map().hosts(); }
bool Context::has_progress_thread() const noexcept { return state_->job->engine().has_thread(); }
const ContextOptions& Context::options() const noexcept { return state_->options; }
std::shared_ptr<const topology::Topology> Context::topology() const {
  return state_->impl->plans().topology();
}
std::vector<std::string> Context::fallbacks() const { return state_->fallbacks.all(); }
std::vector<topology::Measurement> Context::measure_ways() {
  return collectives::probe(*state_->impl, *topology());
}
Communicator& Context::communicator() noexcept { return state_->communicator; }
Log& Context::log() noexcept { return state_->log; }
Timeline& Context::timeline() noexcept { return state_->timeline; }

void announce_failure(Context& context, const std::string& why) {
  context.state_->job->announce_failure(why);
}

RunObserver* observer_of(Context& context) noexcept { return context.state_->observer.get(); }

collectives::CommunicatorImpl& communicator_of(Context& context) noexcept { return *context.state_->impl; }

collectives::Watch* watch_of(Context& context) noexcept { return engine_of(context).watch(); }
void note_shortcoming(Context& context, const std::string& what) { context.state_->fallbacks.add(what); }
collectives::Engine& engine_of(Context& context) noexcept { return context.state_->job->engine(); }

std::string Context::broadcast_string(std::string_view text, int root) {
  std::int64_t length = static_cast<std::int64_t>(text.size());
  communicator().broadcast(std::span(&length, 1), root);
  std::string result =
      rank() == root ? std::string(text) : std::string(static_cast<std::size_t>(length), '\0');
  communicator().broadcast(result.data(), result.size(), root);
  return result;
}

}  // namespace ddl
