#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "collectives/communicator/job.hpp"
#include "collectives/communicator/plan_book.hpp"
#include "collectives/communicator/request.hpp"
#include "collectives/engine/engine.hpp"
#include "ddl/data_type.hpp"
#include "ddl/topology/rank_map.hpp"

namespace ddl::collectives {

struct CommunicatorSettings {
  int number = 0;                  ///< Which of the job's communicators this is; the same on all its ranks.
  int rank = 0;                    ///< In this communicator.
  std::vector<int> members = {0};  ///< Each rank's number in the job.
  topology::RankMap map{{""}};
  std::shared_ptr<PlanBook> plans;
};

/// What stands behind `ddl::Communicator`: it numbers the calls, asks for plans, keeps the programs of
/// earlier calls, and hands them to the job's engine.
///
/// Before a plan is used for the first time all ranks compare it, with what is being called: where they
/// differ each throws `mismatch`. Calls that come while a comparison is under way wait for it, in order; so
/// do those that would be too many at a time. They are started by the threads that finish what they wait for.
/// All ranks make a communicator's calls in the same order, so the first one that waits on any of them can
/// always run.
///
/// Any thread.
class CommunicatorImpl : public std::enable_shared_from_this<CommunicatorImpl> {
 public:
  /// How many calls are under way at a time; the next ones wait.
  static constexpr std::size_t most_under_way = 64;

  CommunicatorImpl(std::shared_ptr<Job> job, CommunicatorSettings settings);
  ~CommunicatorImpl();

  [[nodiscard]] int rank() const noexcept { return settings_.rank; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(settings_.members.size()); }
  [[nodiscard]] Place place() const noexcept { return {rank(), size()}; }
  [[nodiscard]] const topology::RankMap& rank_map() const noexcept { return settings_.map; }
  [[nodiscard]] PlanBook& plans() const noexcept { return *settings_.plans; }
  [[nodiscard]] Job& job() const noexcept { return *job_; }
  [[nodiscard]] const std::shared_ptr<Job>& job_pointer() const noexcept { return job_; }

  /// Returns when this rank's part is over.
  void run(const Request& request);
  /// What is wrong with this job or its plans comes by the result.
  std::shared_ptr<WorkState> start(const Request& request);

  /// A program of the caller's for elements of `element_bytes`.
  [[nodiscard]] std::shared_ptr<const PreparedProgram> prepare(
      topology::Program program, std::size_t count, std::size_t element_bytes, bool mpi_alone = false,
      std::shared_ptr<const PlanNames> names = nullptr) const;
  /// Runs it, in place: every rank runs one of its own, all of which fit together. `name` is for messages.
  void run(const char* name, std::shared_ptr<const PreparedProgram> program, void* data, std::size_t count,
           DataType type, ReduceOp op);

  /// See `ddl::Communicator::split`.
  std::shared_ptr<CommunicatorImpl> split(int color, int key);

 private:
  struct Key {
    topology::Collective collective;
    int root;
    std::size_t elements;
    DataType type;
    auto operator<=>(const Key&) const = default;
  };
  struct PlanKey {
    topology::Collective collective;
    std::uint64_t size_class;
    DataType type;
    auto operator<=>(const PlanKey&) const = default;
  };
  /// A plan, and whether all ranks have agreed on it.
  struct PlanUse {
    std::shared_ptr<const ChosenPlan> chosen;
    bool mpi_alone = false;
    bool agreed = false;  // under flow_mutex_
  };
  struct Runnable {
    std::shared_ptr<const PreparedProgram> program;
    std::size_t steps = 0;
    PlanUse* use = nullptr;  // null: needs no plan
  };
  using Comparison = std::array<std::int64_t, 2>;
  /// A call that is made in parts, by different threads.
  struct Pending;

  [[nodiscard]] Call call_for(const Request& request, const Runnable& runnable) const;
  const Runnable& runnable_for(const Request& request);
  Runnable made_runnable(const Request& request);
  PlanUse& plan_use_for(const Request& request);

  [[nodiscard]] Comparison comparison_for(const Request& request, const PlanUse& use) const;
  [[nodiscard]] Call comparison_call(const Call& call, Comparison& comparison) const;
  void settle(const Call& call, PlanUse& use, const Comparison& greatest);

  bool enter(const PlanUse* use, bool& compares);
  void leave(bool compared);
  std::shared_ptr<Pending> queue(const Request& request, const Call& call, PlanUse* use);
  void start_waiting();
  void begin(const std::shared_ptr<Pending>& pending);
  void compared(const std::shared_ptr<Pending>& pending, const Error* error);
  void begin_call(const std::shared_ptr<Pending>& pending);
  void finish(const std::shared_ptr<Pending>& pending, const Error* error);
  template <typename Next>
  void start_in_engine(const std::shared_ptr<Pending>& pending, const Call& call, Next next);

  int agreed_number();

  const std::shared_ptr<Job> job_;
  const CommunicatorSettings settings_;
  std::shared_ptr<const PreparedProgram> comparison_;

  // Held while a call gets its number and its program, so that calls are numbered in the order of their
  // turns.
  std::mutex order_mutex_;
  std::uint64_t sequence_ = 0;
  std::map<PlanKey, std::unique_ptr<PlanUse>> uses_;
  std::map<Key, Runnable> runnables_;
  std::size_t kept_steps_ = 0;  // of all runnables

  // Held for moments; never while something else is called.
  std::mutex flow_mutex_;
  std::deque<std::shared_ptr<Pending>> waiting_;
  std::size_t under_way_ = 0;
  bool comparing_ = false;
  bool starting_ = false;  // some thread is in start_waiting
};

}  // namespace ddl::collectives
