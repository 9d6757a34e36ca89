#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "collectives/executor.hpp"
#include "collectives/plan_book.hpp"
#include "collectives/transport.hpp"
#include "ddl/data_type.hpp"
#include "ddl/topology/rank_map.hpp"

namespace ddl::collectives {

struct CommunicatorSettings {
  int rank = 0;
  topology::RankMap map{{""}};
  std::chrono::milliseconds deadline{std::chrono::seconds(600)};
  int spins = 0;  ///< See `Executor`.
  std::shared_ptr<PlanBook> plans;
};

/// What stands behind `ddl::Communicator`: it asks for plans, keeps the programs of earlier calls so that a
/// repeated one allocates nothing, and runs them. Before a plan is used for the first time all ranks compare
/// it, with what is being called: where they differ each throws `mismatch`.
class CommunicatorImpl {
 public:
  /// `transport` may be null in a job of one rank.
  CommunicatorImpl(CommunicatorSettings settings, std::unique_ptr<Transport> transport);
  ~CommunicatorImpl();

  [[nodiscard]] int rank() const noexcept { return settings_.rank; }
  [[nodiscard]] int size() const noexcept { return settings_.map.ranks(); }
  [[nodiscard]] const topology::RankMap& rank_map() const noexcept { return settings_.map; }
  [[nodiscard]] PlanBook& plans() const noexcept { return *settings_.plans; }

  void all_reduce(void* data, std::size_t count, DataType type, ReduceOp op);
  void broadcast(void* data, std::size_t bytes, int root);
  void barrier();

  /// Runs a program of the caller's: every rank one of its own, all of which fit together. `name` is for
  /// messages.
  void run(const char* name, const PreparedProgram& program, void* data, DataType type, ReduceOp op);

  /// Called with each plan that is used for the first time, and what its use falls short of it.
  using PlanObserver = std::function<void(const topology::Plan& plan, const std::vector<std::string>& notes)>;
  void on_new_plan(PlanObserver observer) { observer_ = std::move(observer); }

  /// Calls made while one of these lives wait for as long as it takes.
  class PausedDeadline {
   public:
    explicit PausedDeadline(CommunicatorImpl& communicator) : communicator_(communicator) {
      ++communicator_.pauses_;
    }
    PausedDeadline(const PausedDeadline&) = delete;
    PausedDeadline& operator=(const PausedDeadline&) = delete;
    ~PausedDeadline() { --communicator_.pauses_; }

   private:
    CommunicatorImpl& communicator_;
  };

  /// True once a collective has thrown half-way: the streams are out of step from then on, and
  /// later calls throw `transport`.
  [[nodiscard]] bool failed() const noexcept { return failed_; }
  /// Tells the peers that this rank will not go on. Does nothing the second time.
  void announce_failure();
  /// Gives the transport back, having told the peers; later collectives throw `transport`.
  void close();

 private:
  struct Key {
    topology::Collective collective;
    int root;
    std::size_t count;
    DataType type;
    auto operator<=>(const Key&) const = default;
  };
  struct PlanKey {
    topology::Collective collective;
    std::uint64_t size_class;
    DataType type;
    auto operator<=>(const PlanKey&) const = default;
  };
  /// A plan that all ranks have agreed on.
  struct Agreed {
    std::shared_ptr<const ChosenPlan> chosen;
    bool over_network = false;
  };
  struct Runnable {
    PreparedProgram program;
    bool over_network = false;
  };

  void require_usable(const char* name) const;
  void execute(const Key& key, Operation operation);
  void run(const Runnable& runnable, const Operation& operation, Clock::time_point deadline);
  [[nodiscard]] Clock::time_point deadline() const;
  const Runnable& runnable_for(const Key& key, const Operation& operation, Clock::time_point deadline);
  const Agreed& agreed_plan(const Key& key, const Operation& operation, Clock::time_point deadline);
  void require_agreement(const PlanKey& key, const ChosenPlan& chosen, const Operation& operation,
                         Clock::time_point deadline);

  CommunicatorSettings settings_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Executor> executor_;
  PlanObserver observer_;
  std::map<PlanKey, Agreed> agreed_;
  std::map<Key, Runnable> runnables_;
  std::size_t kept_steps_ = 0;  // of all runnables
  std::optional<PreparedProgram> comparison_;
  std::uint64_t sequence_ = 0;
  int pauses_ = 0;
  bool failed_ = false;
  bool announced_ = false;
  bool closed_ = false;
};

}  // namespace ddl::collectives
