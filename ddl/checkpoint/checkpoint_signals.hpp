#pragma once

#include <signal.h>

#include <atomic>
#include <mutex>
#include <set>

#include "ddl/checkpoint.hpp"
#include "ddl/context/signals.hpp"
#include "ddl/error.hpp"

namespace ddl {

/// Receives SIGUSR1 and SIGTERM as requests to one rank. Installs signal handlers while any object of this
/// class exists in the process, where several ranks may be threads, and restores the old handlers afterwards.
/// May be constructed and destroyed in any thread.
class CheckpointSignals {
 public:
  /// Throws `invalid_argument` if the context already has such an object, `internal` if the system refuses.
  explicit CheckpointSignals(const Context& context) : context_(&context.state()) {
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
      all.before_usr1 = handle_signal(SIGUSR1, on_signal);
      all.before_term = handle_signal(SIGTERM, on_signal);
    }
    all.contexts.insert(context_);
    saves_seen_ = saves;
    ends_seen_ = ends;
  }

  CheckpointSignals& operator=(CheckpointSignals&&) = delete;
  ~CheckpointSignals() {
    Listeners& all = listeners();
    const std::lock_guard lock(all.mutex);
    all.contexts.erase(context_);
    if (!all.contexts.empty()) return;
    sigaction(SIGUSR1, &all.before_usr1, nullptr);
    sigaction(SIGTERM, &all.before_term, nullptr);
  }

  /// The strongest request that was not forgotten.
  [[nodiscard]] CheckpointRequest pending() const noexcept {
    if (ends != ends_seen_) return CheckpointRequest::save_and_end;
    return saves != saves_seen_ ? CheckpointRequest::save : CheckpointRequest::none;
  }

  /// Forgets requests up to `request`.
  void forget(CheckpointRequest request) noexcept {
    if (request >= CheckpointRequest::save) saves_seen_ = saves;
    if (request >= CheckpointRequest::save_and_end) ends_seen_ = ends;
  }

 private:
  // Static, because a signal handler can access nothing else. Counters instead of flags, because several
  // ranks in the process may read them.
  static inline std::atomic<unsigned> saves = 0;
  static inline std::atomic<unsigned> ends = 0;
  static_assert(std::atomic<unsigned>::is_always_lock_free, "needed in a signal's handler");

  static void on_signal(int signal) {
    (signal == SIGUSR1 ? saves : ends).fetch_add(1, std::memory_order_relaxed);
  }

  /// The contexts that handle signals, and the handlers before the first of them.
  struct Listeners {
    std::mutex mutex;
    std::set<const ContextState*> contexts;
    struct sigaction before_usr1 {};
    struct sigaction before_term {};
  };

  static Listeners& listeners() {
    static Listeners instance;
    return instance;
  }

  const ContextState* context_;
  unsigned saves_seen_;
  unsigned ends_seen_;
};

}  // namespace ddl
