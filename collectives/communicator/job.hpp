#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "collectives/executor/engine.hpp"
#include "ddl/error.hpp"
#include "ddl/topology/plan.hpp"

namespace ddl::collectives {

/// Called with each plan that a communicator uses for the first time, with notes on where its execution
/// deviates from it.
using PlanObserver = std::function<void(const topology::Plan& plan, const std::vector<std::string>& notes)>;

/// `error` itself if it is an `Error`, else an `internal` one with its text.
Error as_error(const std::exception& error);

/// What all communicators of a rank's context share. Thread-safe.
class Job {
 public:
  /// `most_communicators`: the limit for communicators at a time, including the first one.
  Job(std::shared_ptr<Engine> engine, std::chrono::milliseconds deadline, int most_communicators);

  [[nodiscard]] Engine& engine() const noexcept { return *engine_; }

  /// The deadline of calls that are made now.
  [[nodiscard]] std::chrono::milliseconds deadline() const noexcept {
    return pauses_.load(std::memory_order_relaxed) != 0 ? std::chrono::milliseconds::max() : deadline_;
  }
  /// Calls made while one of these lives have no deadline.
  class PausedDeadline {
   public:
    explicit PausedDeadline(Job& job) : job_(job) { ++job_.pauses_; }
    PausedDeadline& operator=(PausedDeadline&&) = delete;
    ~PausedDeadline() { --job_.pauses_; }

   private:
    Job& job_;
  };

  void on_new_plan(PlanObserver observer);
  void tell_of_plan(const topology::Plan& plan, const std::vector<std::string>& notes);

  /// True once a collective has failed; later calls throw that failure.
  [[nodiscard]] bool failed() const noexcept { return failed_ || engine_->failed(); }
  /// Marks the job as failed, for failures after the last collective.
  void fail() noexcept { failed_ = true; }
  /// Throws the first failure if there was one, and `transport` once the job is closed.
  void require_usable(const CallName& name) const {
    if (closed_.load(std::memory_order_relaxed) || failed()) refuse(name);
  }
  /// Tells the peers that this rank gives up, and why. Only the first call has an effect.
  void announce_failure(const std::string& why);
  /// Waits for calls in flight and leaves normally; after a failure, waits for nothing.
  void close();

  /// Registers an operation of which the engine does not know all calls, so that `close` waits until it is
  /// finished.
  [[nodiscard]] std::shared_ptr<WorkState> open_work();
  void finish(const std::shared_ptr<WorkState>& work, std::optional<Error> error);

  /// Fails the job because this rank cannot do a call. Returns the error to throw. `rank`: in the
  /// communicator.
  [[nodiscard]] Error give_up(const CallId& call, int rank, const std::exception& problem);

  /// Proposes a number from `least` on for a new communicator, unused on this rank. It may exceed the limit.
  /// Numbers that were given back are proposed last.
  [[nodiscard]] int proposed_number(int least);
  /// Returns false if this rank uses the number by now. Throws `unsupported`, on all ranks, if the number
  /// exceeds the limit.
  [[nodiscard]] bool take_number(int number);
  /// No call with this number may be in flight on this rank.
  void give_back_number(int number);

 private:
  [[noreturn]] void refuse(const CallName& name) const;
  void forget(const std::shared_ptr<WorkState>& work);

  std::shared_ptr<Engine> engine_;
  std::chrono::milliseconds deadline_;
  int most_communicators_;
  std::atomic<int> pauses_ = 0;
  std::atomic<bool> failed_ = false;
  std::atomic<bool> closed_ = false;
  std::mutex observer_mutex_;
  PlanObserver observer_;
  std::mutex mutex_;
  std::set<std::shared_ptr<WorkState>> open_;
  int next_number_ = 1;
  std::set<int> taken_;  // numbers of communicators in use
};

}  // namespace ddl::collectives
