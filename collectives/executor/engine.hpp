#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/executor/operation.hpp"
#include "collectives/system/mutex.hpp"
#include "collectives/timeline/run_recorder.hpp"
#include "collectives/transports/network/network.hpp"
#include "collectives/transports/shared_memory/host_memory.hpp"
#include "collectives/watch/watch.hpp"
#include "ddl/error.hpp"
#include "ddl/topology/rank_map.hpp"

namespace ddl::collectives {

struct EngineSettings {
  int rank = 0;  ///< This rank, in the job.
  topology::RankMap map{{""}};
  int spins = 0;                                 ///< Polls before the core is offered to other threads.
  int spins_beside_caller = 0;                   ///< The same, of the engine's own thread.
  std::shared_ptr<HostMemory> memory = nullptr;  ///< Null if this rank shares memory with no other.
  std::vector<int> members = {};                 ///< Rank in the job of each member of `memory`.
  std::unique_ptr<Network> network = nullptr;    ///< To ranks that are not members. May be null.
  std::unique_ptr<Network> mpi = nullptr;        ///< For programs that use MPI only. May be null.
  /// If null, failures of other ranks are noticed only by deadlines and broken connections.
  std::shared_ptr<Watch> watch = nullptr;
  /// Called with the flight recorder's records once a call has failed. May be empty.
  std::function<void(const std::vector<FlightRecord>&)> on_failure = nullptr;
  /// Records statistics and events of calls. May be null.
  std::shared_ptr<RunRecorder> run = nullptr;
};

class Driver;

/// A lock that knows its holder. Only the holder may use the driver.
class Token {
 public:
  void lock() {
    mutex_.lock();
    hold();
  }
  bool try_lock() {
    if (!mutex_.try_lock()) return false;
    hold();
    return true;
  }
  void unlock() {
    holder_.store({}, std::memory_order_relaxed);
    mutex_.unlock();
  }
  /// A thread always sees its own last store, so no order is needed.
  [[nodiscard]] bool is_mine() const {
    return holder_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }

 private:
  void hold() { holder_.store(std::this_thread::get_id(), std::memory_order_relaxed); }

  Mutex mutex_;
  std::atomic<std::thread::id> holder_;
};

/// Runs a rank's part of collectives: any number at a time, of all its communicators. `run` uses the caller's
/// thread if no other thread is driving. Calls from `start` are driven by the engine's own thread, which
/// sleeps while there is nothing to do. Thread-safe.
///
/// A call that fails also fails the engine: all other calls, and later ones, end with its error. A failure of
/// another rank does the same as soon as a call waits. The error names the first failure of the job and how
/// far each rank had come.
class Engine {
 public:
  explicit Engine(EngineSettings settings);
  ~Engine();

  [[nodiscard]] int rank() const noexcept { return settings_.rank; }
  [[nodiscard]] const topology::RankMap& map() const noexcept { return settings_.map; }
  [[nodiscard]] HostMemory* memory() const noexcept { return settings_.memory.get(); }
  /// This rank's index in the host's memory.
  [[nodiscard]] int member() const noexcept { return ways_.member[as_index(rank())]; }
  /// `bytes` zeroed bytes, aligned to 64, shared with the host's ranks if there is shared memory; null if no
  /// memory is left. The block may outlive the engine.
  [[nodiscard]] std::shared_ptr<void> allocate(std::size_t bytes) const;
  [[nodiscard]] bool has_mpi() const noexcept { return settings_.mpi != nullptr; }
  /// Whether started calls progress by themselves, or only while a thread waits for or tests them.
  [[nodiscard]] bool has_thread() const noexcept { return has_thread_; }
  /// For example "ucx (tcp)"; empty if there is no network.
  [[nodiscard]] std::string network_name() const {
    return settings_.network ? settings_.network->name() : "";
  }

  /// How this rank reaches other ranks, for `PreparedProgram`. Valid as long as the engine.
  [[nodiscard]] const Ways& ways(bool mpi_alone) const noexcept { return mpi_alone ? mpi_ways_ : ways_; }

  /// May be null.
  [[nodiscard]] Watch* watch() const noexcept { return settings_.watch.get(); }
  /// This rank's calls. The engine updates the records of calls whose `record` is set.
  [[nodiscard]] FlightRecorder& recorder() noexcept { return recorder_; }
  /// Null if the run is not recorded.
  [[nodiscard]] const std::shared_ptr<RunRecorder>& run_recorder() const noexcept { return settings_.run; }

  /// Returns when this rank's part is complete. Throws `timeout`, `peer_failed`, `mismatch` or `transport`;
  /// the message names the collective, the plan, and the awaited peers with their phases. The contents of
  /// `call` are unspecified afterwards, because a copy would cost more than a small call.
  void run(Call&& call);
  void run(const Call& call) { run(Call(call)); }
  std::shared_ptr<WorkState> start(const Call& call);
  /// For an operation of several calls. The caller must finish it.
  [[nodiscard]] std::shared_ptr<WorkState> new_work();

  [[nodiscard]] bool failed() const noexcept { return failed_; }
  /// The error of a call after the first failure: that failure's code, and the first line of its text.
  [[nodiscard]] Error failed_before(const CallName& name) const;
  /// Tells the job of an error outside of the engine, unless there has been one already. Waits for nothing.
  /// `call`: the collective that failed, if any.
  void announce(const Error& error, const CallId& call);
  /// Fails the engine and the job because of an error outside of the engine. Returns the error to throw.
  [[nodiscard]] Error give_up(const Error& error, const CallId& call = {});
  /// Announces such a failure in one line unless there has been one already, and abandons the network. Waits
  /// for nothing.
  void announce_failure(const std::string& why);
  /// Does the work that is possible now, for peers too, without a call of this rank. Does not block.
  void progress();
  /// Waits for all calls in flight. An error fails the engine.
  void drain();
  /// Drains, tells the peers that this rank has left, and releases all resources; later calls throw
  /// `transport`. After a failure it waits for nothing.
  void close();

 private:
  struct Queued {
    Call call;
    std::shared_ptr<WorkState> work;
  };

  void require_usable(const CallName& name) const {
    if (closed_ || failed_) refuse(name);
  }
  [[noreturn]] void refuse(const CallName& name) const;
  void run_here(Call& call);
  std::shared_ptr<WorkState> enqueue(const Call& call);
  [[nodiscard]] bool has_work() const;
  void take_queue();
  std::optional<Queued> next_queued();
  template <typename IsOver>
  void drive(const IsOver& is_over, bool beside_caller = false);
  /// Fails the engine if the action throws; returns whether it did not.
  template <typename Action>
  bool attempt(const Action& action);
  void hand_over();
  void start_thread();
  void work();
  bool go_on(bool drives);
  void help(const WorkState& wanted, bool until_done);
  Error fail(const Error& error);
  Error fail(const Error& error, const CallId& call, const std::string& brief);
  Error examined(const Error& error, const CallId& call, const std::string& brief) const;
  bool get_token(std::unique_lock<Token>& hold);

  EngineSettings settings_;  // without networks once closed
  const Ways ways_;
  const Ways mpi_ways_;
  const bool has_thread_;  // a thread of the engine may drive calls
  FlightRecorder recorder_;

  Token token_;
  std::unique_ptr<Driver> driver_;

  mutable std::mutex mutex_;  // protects everything below
  std::condition_variable changed_;
  std::deque<Queued> queue_;
  std::thread thread_;
  bool left_over_ = false;  // a token holder left operations in flight
  bool looking_ = false;    // the thread polls so that sent data leaves
  std::uint64_t hand_overs_ = 0;
  bool stopping_ = false;
  std::optional<Error> failure_;
  std::atomic<std::size_t> queued_ = 0;
  std::atomic<bool> failed_ = false;
  std::atomic<bool> closed_ = false;
};

}  // namespace ddl::collectives
