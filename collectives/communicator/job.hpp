#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
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

/// Called with each plan that a communicator uses for the first time, and what its use falls short of it.
using PlanObserver = std::function<void(const topology::Plan& plan, const std::vector<std::string>& notes)>;

/// What all communicators of a rank's context share. Any thread.
class Job {
 public:
  /// `most_communicators`: how many can be told apart at a time, the first one among them.
  Job(std::shared_ptr<Engine> engine, std::chrono::milliseconds deadline, int most_communicators);

  [[nodiscard]] Engine& engine() const noexcept { return *engine_; }

  /// For calls that are made now.
  [[nodiscard]] std::chrono::milliseconds deadline() const noexcept {
    return pauses_.load(std::memory_order_relaxed) != 0 ? std::chrono::milliseconds::max() : deadline_;
  }
  /// Calls made while one of these lives wait for as long as it takes.
  class PausedDeadline {
   public:
    explicit PausedDeadline(Job& job) : job_(job) { ++job_.pauses_; }
    PausedDeadline(const PausedDeadline&) = delete;
    PausedDeadline& operator=(const PausedDeadline&) = delete;
    ~PausedDeadline() { --job_.pauses_; }

   private:
    Job& job_;
  };

  void on_new_plan(PlanObserver observer);
  void tell_of_plan(const topology::Plan& plan, const std::vector<std::string>& notes);

  /// True once a collective has gone wrong half-way: later calls throw that failure.
  [[nodiscard]] bool failed() const noexcept { return failed_ || engine_->failed(); }
  /// For what goes wrong while leaving, after the last collective.
  void fail() noexcept { failed_ = true; }
  /// Throws the first failure after one, and `transport` once the job is closed.
  void require_usable(const char* name) const {
    if (closed_.load(std::memory_order_relaxed) || failed()) refuse(name);
  }
  /// Tells the peers that this rank will not go on, and why. Does nothing the second time.
  void announce_failure(const std::string& why);
  /// Waits for calls under way and leaves in order; after a failure, waits for nothing.
  void close();

  /// Between the two the engine does not know of all of a call: `close` waits for it.
  [[nodiscard]] std::shared_ptr<WorkState> open_work();
  void finish(const std::shared_ptr<WorkState>& work, std::optional<Error> error);

  /// This rank cannot do a call: fails the job. Returns the error to throw. `rank`: in the communicator.
  [[nodiscard]] Error give_up(const CallId& call, int rank, const std::exception& problem);

  /// A number for a new communicator that this rank does not use, `least` or more; may be too high. Those
  /// that were given back come last.
  [[nodiscard]] int proposed_number(int least);
  /// False if this rank has begun to use the number meanwhile. Throws `unsupported`, agreed, if there is no
  /// such number.
  [[nodiscard]] bool take_number(int number);
  /// No call with this number is under way on this rank.
  void give_back_number(int number);

 private:
  [[noreturn]] void refuse(const char* name) const;
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
  std::set<int> taken_;  // numbers of communicators
};

}  // namespace ddl::collectives
