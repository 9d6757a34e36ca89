#pragma once

#include <memory>

#include "collectives/executor/operation.hpp"
#include "collectives/timeline/run_recorder.hpp"
#include "collectives/transports/network/network.hpp"
#include "collectives/transports/shared_memory/host_memory.hpp"
#include "collectives/watch/watch.hpp"
#include "ddl/error.hpp"
#include "ddl/topology/rank_map.hpp"

namespace ddl::collectives {

struct EngineSettings {
  int rank = 0;                 ///< In the job, as all ranks here are.
  topology::RankMap map{{""}};  ///< Of the job.
  int spins = 0;                ///< Times to look again before the core is offered to others.
  std::shared_ptr<HostMemory> memory = nullptr;  ///< Null: shares memory with nobody.
  std::vector<int> members = {};                 ///< Rank of each member of `memory`.
  std::unique_ptr<Network> network = nullptr;    ///< To those who are not members. May be null.
  std::unique_ptr<Network> mpi = nullptr;        ///< For programs that want MPI alone. May be null.
  /// Null: failures of other ranks are noticed by deadlines and broken connections alone.
  std::shared_ptr<Watch> watch = nullptr;
  /// Gets what the flight recorder holds once a call has failed; may be empty.
  std::function<void(const std::vector<FlightRecord>&)> on_failure = nullptr;
  /// What is kept of calls besides; null: nothing.
  std::shared_ptr<RunRecorder> run = nullptr;
};

/// Runs a rank's part of collectives: of all its communicators, any number at a time. `run` does so in the
/// caller's thread if nothing else is under way. What was started with `start` is driven by a thread of the
/// engine's own, which sleeps while there is nothing to do. Any thread.
///
/// A call that fails fails the engine: all other calls, later ones too, end with its error. So does the
/// failure of another rank, as soon as a call waits. The error says which failure of the job was the first,
/// and how far each rank had come.
class Engine {
 public:
  explicit Engine(EngineSettings settings);
  ~Engine();

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] const topology::RankMap& map() const noexcept;
  [[nodiscard]] HostMemory* memory() const noexcept;
  /// This rank's index in the host's memory.
  [[nodiscard]] int member() const noexcept;
  /// `bytes` bytes of zeros, aligned to 64, that the host's ranks share if they share any; null if there is
  /// no more. May outlive the engine.
  [[nodiscard]] std::shared_ptr<void> allocate(std::size_t bytes) const;
  [[nodiscard]] bool has_mpi() const noexcept;
  /// Whether what is started moves on by itself; else by those who wait for it or test it.
  [[nodiscard]] bool has_thread() const noexcept;
  /// "ucx (tcp)"; empty if there is none.
  [[nodiscard]] std::string network_name() const;

  /// What `PreparedProgram` needs to know of ways to other ranks. Valid as long as the engine.
  [[nodiscard]] const Ways& ways(bool mpi_alone) const noexcept;

  /// Null if there is none.
  [[nodiscard]] Watch* watch() const noexcept;
  /// What this rank calls. Calls with a record there are kept up to date.
  [[nodiscard]] FlightRecorder& recorder() noexcept;
  /// Null: nobody wants to know.
  [[nodiscard]] const std::shared_ptr<RunRecorder>& run_recorder() const noexcept;

  /// Returns when this rank's part is over. Throws `timeout`, `peer_failed`, `mismatch` or `transport`;
  /// messages name the collective, the plan, the peers that are waited for and the phases in which they are.
  /// What is left of the call afterwards is unspecified: a small one costs less than a copy of it.
  void run(Call&& call);
  void run(const Call& call) { run(Call(call)); }
  std::shared_ptr<WorkState> start(const Call& call);
  /// For something that takes several calls, which its maker finishes.
  [[nodiscard]] std::shared_ptr<WorkState> new_work();

  [[nodiscard]] bool failed() const noexcept;
  /// What a call gets after the first failure: that one's code, and its text in a line.
  [[nodiscard]] Error failed_before(const char* name) const;
  /// This rank cannot go on, for reasons that the engine does not know: fails the engine and the job. Returns
  /// the error to throw. `call`: the collective that it is about, if any.
  [[nodiscard]] Error give_up(const Error& error, const CallId& call = {});
  /// The same, in one line, if there has been no failure; and lets go of the network. Waits for nothing.
  void announce_failure(const std::string& why);
  /// Moves on what can be moved, of peers as well, without a call of this rank's. Does not block.
  void progress();
  /// Waits for what is under way. What goes wrong fails the engine.
  void drain();
  /// Drains, tells the peers that this rank has left, and gives everything back; later
  /// calls throw `transport`. After a failure it waits for nothing.
  void close();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ddl::collectives
