#include "ddl/checkpoint/checkpoint_signals.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>

#include "ddl/context/signal_stack.hpp"
#include "ddl/error.hpp"

namespace ddl {
namespace {

// Global, because a signal handler can access nothing else. Counters instead of flags, because several ranks
// in the process may read them.
std::atomic<unsigned> saves = 0;
std::atomic<unsigned> ends = 0;
static_assert(std::atomic<unsigned>::is_always_lock_free, "needed in a signal's handler");

void on_signal(int signal) { (signal == SIGUSR1 ? saves : ends).fetch_add(1, std::memory_order_relaxed); }

/// The contexts that handle signals, and the handlers before the first of them.
struct Listeners {
  std::mutex mutex;
  std::set<const ContextState*> contexts;
  struct sigaction before_usr1 {};
  struct sigaction before_term {};
};

Listeners& listeners() {
  static Listeners instance;
  return instance;
}

void install(int signal, struct sigaction& before) {
  struct sigaction wanted {};
  wanted.sa_handler = on_signal;
  wanted.sa_flags = SA_RESTART | SA_ONSTACK;
  sigemptyset(&wanted.sa_mask);
  if (sigaction(signal, &wanted, &before) != 0) {
    throw Error(ErrorCode::internal,
                fmt::format("cannot handle signal {}: {}", signal, std::strerror(errno)));
  }
}

}  // namespace

CheckpointSignals::CheckpointSignals(const Context& context) : context_(&context.state()) {
  Listeners& all = listeners();
  const std::lock_guard lock(all.mutex);
  if (all.contexts.contains(context_)) {
    throw Error(
        ErrorCode::invalid_argument,
        "found a second Checkpoint with handle_signals, expected one of a context at a time: each signal "
        "would be answered twice; leave handle_signals out for the others");
  }
  ensure_signal_stack();
  if (all.contexts.empty()) {
    install(SIGUSR1, all.before_usr1);
    install(SIGTERM, all.before_term);
  }
  all.contexts.insert(context_);
  saves_seen_ = saves;
  ends_seen_ = ends;
}

CheckpointSignals::~CheckpointSignals() {
  Listeners& all = listeners();
  const std::lock_guard lock(all.mutex);
  all.contexts.erase(context_);
  if (!all.contexts.empty()) return;
  sigaction(SIGUSR1, &all.before_usr1, nullptr);
  sigaction(SIGTERM, &all.before_term, nullptr);
}

CheckpointRequest CheckpointSignals::pending() const noexcept {
  if (ends != ends_seen_) return CheckpointRequest::save_and_end;
  return saves != saves_seen_ ? CheckpointRequest::save : CheckpointRequest::none;
}

void CheckpointSignals::forget(CheckpointRequest request) noexcept {
  if (request >= CheckpointRequest::save) saves_seen_ = saves;
  if (request >= CheckpointRequest::save_and_end) ends_seen_ = ends;
}

}  // namespace ddl
