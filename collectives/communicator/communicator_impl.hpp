#pragma once

#include <array>
#include <atomic>
#include <compare>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "collectives/communicator/job.hpp"
#include "collectives/communicator/plan_book.hpp"
#include "collectives/communicator/reproducible_reductions.hpp"
#include "collectives/communicator/request.hpp"
#include "collectives/executor/engine.hpp"
#include "collectives/system/mutex.hpp"
#include "ddl/data_type.hpp"
#include "ddl/topology/rank_map.hpp"

namespace ddl::collectives {

struct CommunicatorSettings {
  int number = 0;                  ///< The communicator's number in the job; the same on all of its ranks.
  int rank = 0;                    ///< This rank, in the communicator.
  std::vector<int> members = {0};  ///< By rank: its rank in the job.
  topology::RankMap map{{""}};
  std::shared_ptr<PlanBook> plans;
  /// The communicators' numbers for the stages of reproducible reductions; empty if reductions need not be
  /// reproducible.
  std::vector<int> lanes = {};
};

/// The implementation of `ddl::Communicator`: numbers the calls, asks for plans, caches programs, and passes
/// calls to the job's engine.
///
/// Before a plan is first used, all ranks compare it and the call; if they differ, each rank throws
/// `mismatch`. Calls that are made during a comparison, or while other calls wait, wait in order. The threads
/// that complete what they wait for start them. All ranks make a communicator's calls in the same order, so
/// the first waiting call of all ranks can always run.
///
/// Thread-safe.
class CommunicatorImpl : public std::enable_shared_from_this<CommunicatorImpl> {
 public:
  CommunicatorImpl(std::shared_ptr<Job> job, CommunicatorSettings settings);
  ~CommunicatorImpl();

  [[nodiscard]] int rank() const noexcept { return settings_.rank; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(settings_.members.size()); }
  [[nodiscard]] Place place() const noexcept { return {rank(), size()}; }
  [[nodiscard]] const topology::RankMap& rank_map() const noexcept { return settings_.map; }
  [[nodiscard]] PlanBook& plans() const noexcept { return *settings_.plans; }
  [[nodiscard]] Job& job() const noexcept { return *job_; }
  [[nodiscard]] const std::shared_ptr<Job>& job_pointer() const noexcept { return job_; }

  /// Returns when this rank's part is complete.
  void run(const Request& request);
  /// Errors of the job and of its plans are reported by the result.
  std::shared_ptr<WorkState> start(const Request& request);

  /// The number of residual elements of the call on this rank.
  [[nodiscard]] std::size_t residual_size(const Request& request);

  /// Prepares a program of the caller for elements of `element_bytes`.
  [[nodiscard]] std::shared_ptr<const PreparedProgram> prepare(
      topology::Program program, std::size_t count, std::size_t element_bytes,
      std::shared_ptr<const ChosenPlan> plan = nullptr) const;
  /// Runs `program` in place. Every rank must make the call, with programs that fit together or with none
  /// (null). `name` is for messages.
  void run(const CallName& name, std::shared_ptr<const PreparedProgram> program, void* data,
           std::size_t count, DataType type, ReduceOp op);

  /// See `ddl::Communicator`.
  std::shared_ptr<CommunicatorImpl> split(int color, int key);
  using Greatest = std::function<std::int64_t(std::int64_t)>;
  std::shared_ptr<CommunicatorImpl> subgroup(std::span<const int> ranks, const Greatest& greatest);

 private:
  /// What a program is for, packed into two numbers that are quick to compare.
  struct Key {
    explicit Key(const Request& request) noexcept;
    auto operator<=>(const Key&) const = default;
    [[nodiscard]] std::size_t slot(std::size_t slots) const noexcept {
      constexpr std::uint64_t golden_ratio = 0x9e3779b97f4a7c15;  // Fibonacci hashing: Knuth, vol. 3, 6.4
      return ((elements + rest * golden_ratio) * golden_ratio >> 32) % slots;
    }
    std::uint64_t elements;
    std::uint64_t rest;
  };
  /// Set once all ranks have agreed on a plan.
  using Agreed = std::atomic<bool>;
  struct CachedProgram {
    std::shared_ptr<const PreparedProgram> program;
    std::uint32_t fingerprint = 0;  // of everything but the operation
    Agreed* agreed = nullptr;       // null if there is no plan
  };
  using Comparison = std::array<std::int64_t, 2>;
  struct Pending;

  [[nodiscard]] bool is_trivial(const Request& request) const noexcept {
    return size() == 1 || request.elements == 0;
  }
  void run_trivial(const Request& request, Call& call) const;
  [[nodiscard]] CallId id_of(const Request& request) const;
  [[nodiscard]] Call next_call(const Request& request);
  Agreed* add_program(Call& call, const Request& request);

  const CachedProgram& program_for(const Request& request);
  CachedProgram prepare(const Request& request);

  [[nodiscard]] static Comparison comparison_for(const Request& request, const Call& call);
  [[nodiscard]] Call comparison_call(const Call& call, Comparison& comparison) const;
  void settle(const Call& call, Agreed& agreed, const Comparison& greatest);

  /// Whether a call may start now and without a comparison. Caller holds order_mutex_.
  [[nodiscard]] bool may_start(const Agreed* agreed) const noexcept {
    return !makes_wait_.load(std::memory_order_acquire) &&
           (agreed == nullptr || agreed->load(std::memory_order_acquire));
  }
  bool begin_comparison(const Agreed* agreed);
  void end_comparison();
  std::shared_ptr<WorkState> queue(const Call& call, Agreed* agreed, const Comparison& comparison);
  void start_waiting();
  void begin(const std::shared_ptr<Pending>& pending, bool compares);
  void compared(const std::shared_ptr<Pending>& pending, const Error* error);
  void begin_call(const std::shared_ptr<Pending>& pending);
  void start_in_engine(const Call& call, const WorkState::Continuation& over);

  [[nodiscard]] int agreed_number(const Greatest& greatest) const;
  [[nodiscard]] std::shared_ptr<CommunicatorImpl> part(std::span<const int> ranks,
                                                       const Greatest& greatest) const;
  void open_lanes();

  const std::shared_ptr<Job> job_;
  const CommunicatorSettings settings_;
  std::shared_ptr<const PreparedProgram> comparison_;
  std::shared_ptr<ReproducibleReductions> reproducible_;  // null if reductions follow their plans' order

  // Held while a call gets its number and its program, so that numbers follow the order of calls.
  Mutex order_mutex_;
  std::uint64_t sequence_ = 0;
  std::map<std::shared_ptr<const ChosenPlan>, Agreed> agreed_;
  std::map<Key, CachedProgram> programs_;
  std::array<const std::pair<const Key, CachedProgram>*, 64> recent_{};  // of `programs_`, by `Key::slot`
  std::size_t kept_steps_ = 0;                                           // of all cached programs

  // Held briefly; no other code is called while it is held.
  std::mutex flow_mutex_;
  std::deque<std::shared_ptr<Pending>> waiting_;
  bool comparing_ = false;
  bool starting_ = false;  // a thread is in start_waiting
  /// New calls must wait, because a comparison is in flight or other calls wait.
  std::atomic<bool> makes_wait_ = false;
};

}  // namespace ddl::collectives
