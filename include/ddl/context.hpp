#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/communicator.hpp"
#include "ddl/error.hpp"
#include "ddl/topology/calibrate.hpp"
#include "ddl/topology/plan.hpp"
#include "ddl/topology/topology.hpp"

namespace ddl {

class Log;
class Timeline;
struct ContextState;

/// Whether plans are chosen by measured figures of links in place of those that their kinds promise.
enum class ProbeUse : std::uint8_t {
  off,     ///< Never.
  cached,  ///< If figures for this topology have been kept (by `on`, or by `ddl-topo probe`).
  on,      ///< Measures while starting and keeps the figures, if there are none.
};

/// What carries data between ranks that share no memory.
enum class NetworkUse : std::uint8_t {
  automatic,  ///< UCX; MPI, with a warning, where UCX is not to be had.
  ucx,
  mpi,
};

/// How long ranks wait for each other's work.
enum class WorkTime : std::uint8_t {
  within_deadline,  ///< As for any collective.
  unlimited,        ///< All arrive within the deadline; then the work takes as long as it takes.
};

/// Settings of a context. `from_environment()` fills them from the variables named here.
struct ContextOptions {
  /// Every blocking operation fails with `ErrorCode::timeout` after this. DDL_DEADLINE (seconds).
  std::chrono::milliseconds deadline{std::chrono::seconds(600)};
  /// Name of this rank's host; ranks with the same name share memory. Empty: found from the machine.
  /// DDL_HOST_ID lets ranks of one machine pretend to be on several.
  std::string host_id;
  /// The same on all ranks. DDL_NETWORK=auto, ucx or mpi.
  NetworkUse network = NetworkUse::automatic;
  /// Which plans compete for each collective: everything, rings, ... DDL_OPTIONS="-mode r".
  topology::Mode mode = topology::Mode::explore;
  /// Only plans with this grid of workers, as `Decomposition::parse` reads it; empty: any. Like `plans`, for
  /// communicators of all ranks in their order.
  /// DDL_OPTIONS="-mode p:4x4".
  std::string decomposition;
  /// Plans to use as they are, at most one for each collective on hosts and one on devices, by their
  /// carriers; the others are chosen. DDL_PLAN names files of them, with commas between, as `to_json` writes
  /// them.
  std::vector<topology::Plan> plans;
  /// What the ranks run on: a preset ("ac922:4") or a file; rank r is its device r. Empty: discovered.
  /// Rank 0 reads it. DDL_TOPOLOGY.
  std::string topology;
  /// Where rank 0 writes what plans are chosen for, as the start of files' names: NAME.json, and
  /// NAME.devices.json for collectives on devices. `ddl-plan --topology FILE` then chooses the job's plans.
  /// Empty: nowhere. DDL_SAVE_TOPOLOGY.
  std::string save_topology;
  /// DDL_PROBE=off, cached (what `from_environment` takes unless told otherwise) or on.
  ProbeUse probe = ProbeUse::off;
  /// Where measured figures are kept; empty: nowhere. DDL_CACHE_DIR, else $XDG_CACHE_HOME/ddl, else
  /// ~/.cache/ddl.
  std::string cache_directory;
  /// Nothing is done in another way than asked for (another network, a plan whose carrier is not here, ranks
  /// of a host that cannot share memory): that is an error `unsupported` on all ranks in place of a warning.
  /// DDL_STRICT=0 or 1.
  bool strict = false;
  /// Reductions of floats give the same bits for a number of ranks, whatever the topology, plans, placement
  /// and cuts of the data, at the price of more bytes: `Communicator` says how. DDL_REPRODUCIBLE=0 or 1.
  bool reproducible = false;
  /// Gradient reducers look for gradients in the host's memory that have moved, are freed, or are written to
  /// after `ready`, and throw `invalid_argument` on the rank that has one. Reads each gradient three times a
  /// step. DDL_CHECK=0 or 1.
  bool check = false;
  /// Where to write what a failed job leaves behind, as the start of files' names: NAME.json, the exit
  /// report, by rank 0; NAME.rank3.txt, rank 3's last 256 collectives. Empty: nowhere. DDL_REPORT.
  std::string report;
  /// A file for a trace of what all ranks do, and when; the same on all ranks. Empty: none. `Timeline` says
  /// what is in it. DDL_TIMELINE.
  std::string timeline;
  /// Events that each thread keeps for it: the newest ones. DDL_TIMELINE_EVENTS.
  std::size_t timeline_events = std::size_t{1} << 17;
  /// Gradient reducers print who was late and how long each dimension took every so many steps; 0: never. The
  /// same on all ranks. DDL_OPTIONS="-dump_iter 100".
  int dump_iterations = 0;
  /// 1: each collective on a device is waited for, to find which one an error is of; 2: and what is queued on
  /// the device before it. DDL_OPTIONS="-dev_sync 1".
  int device_sync = 0;
  /// IBM's, for scripts that have it: it has no effect, and that is told. DDL_OPTIONS="-rebind_iter 100".
  int rebind_iterations = 0;
  /// 0 errors and warnings, 1 a line for each plan that is used and a summary at the end (rank 0's level
  /// counts), 2 every choice and fallback.
  /// DDL_OPTIONS="-dbg_level 1", else DDL_DEBUG_LEVEL.
  int debug_level = 0;

  /// Reads the variables above, after the file that DDL_OPTIONS_FILE names; then `flags`, spelt as
  /// DDL_OPTIONS: see ddl/options.hpp. Throws `invalid_argument` naming where the value is from
  /// (`flags_origin`), what was found and what was expected; for a variable DDL_... that is not known, the
  /// nearest one; and as `plan_from_json` does.
  static ContextOptions from_environment(std::string_view flags = {},
                                         std::string_view flags_origin = "flags");
};

/// One worker's view of the job, or of a group of its ranks (`split`): who it is, the communicator, and what
/// only rank 0 does.
///
/// A handle: copies refer to the same. Reducers, checkpoints and other objects made with a context keep it
/// alive. When the last handle goes, this rank waits for its outstanding collectives and leaves the job
/// (under mpirun: MPI_Finalize, if this context called MPI_Init and no error has been seen). Not thread-safe;
/// use it from one thread. Its communicators may be used by any thread.
class Context {
 public:
  /// Under mpirun: MPI's rank and size; ranks on one host share memory, hosts talk through UCX, or else MPI.
  /// Without mpirun: processes of one machine that RANK and WORLD_SIZE tell who they are, as other launchers
  /// do, find each other through a Unix socket: DDL_SOCKET, a path or "@name", the same for all; unset, one
  /// of the user's, by MASTER_PORT or else by session. Without these: a job of one rank. If the program has
  /// called MPI_Init, that is used and left as it is; else MPI_Init is called, after settings that keep Open
  /// MPI's warnings about forks, unused networks and containers quiet (environment variables OMPI_MCA_*,
  /// where they are not set). A process can do this once: MPI cannot be started again. Settings that ranks
  /// must share are compared: agreed errors `invalid_argument` and `mismatch`. Collective. Throws
  /// `invalid_argument` for a bad variable, `transport` where the ranks cannot be connected.
  static Context from_environment();
  static Context from_environment(const ContextOptions& options);

  /// For MPI programs of which this job is a part: its ranks are those of `communicator`, in their order. The
  /// rest of MPI_COMM_WORLD takes no part, and may be another job. `communicator`: an MPI_Comm's address, so
  /// that this header needs no mpi.h; the communicator is duplicated, and may be freed. MPI must be
  /// initialized, and stay so while the context lives. Collective over `communicator`. Throws as
  /// `from_environment`; `invalid_argument` for MPI_COMM_NULL, an intercommunicator, or where MPI is not
  /// initialized; `unsupported` in a build without MPI.
  static Context from_mpi(const void* communicator, const ContextOptions& options);

  /// A whole program: makes a context from the environment and calls `run` with it. What goes wrong
  /// while starting is printed once too, and returned as `run` would. Collective.
  static int run_from_environment(const std::function<int(Context&)>& body);

  /// A context of those ranks that give the same `color` (0 or more), ordered by `key`, then by rank: its
  /// reducers, broadcasts, checkpoints and samplers are among them alone. Its rank 0 logs for the group.
  /// Options, the deadline and the timeline are the job's. Collective. Throws `invalid_argument`, agreed, for
  /// a negative color.
  [[nodiscard]] Context split(int color, int key = 0) const;

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int size() const noexcept;
  /// Index among, and number of, the ranks of this rank's host.
  [[nodiscard]] int local_rank() const noexcept;
  [[nodiscard]] int local_size() const noexcept;
  /// Number of hosts.
  [[nodiscard]] int hosts() const noexcept;
  /// Whether `_async` calls go on by themselves; else they do while somebody waits for them or tests them.
  [[nodiscard]] bool has_progress_thread() const noexcept;
  [[nodiscard]] bool is_root() const noexcept { return rank() == 0; }
  [[nodiscard]] const ContextOptions& options() const noexcept;
  /// What plans are chosen for; the job's rank r is its device r, in a group too. Found when first asked for
  /// where the ranks are threads.
  [[nodiscard]] std::shared_ptr<const topology::Topology> topology() const;
  /// What has been done in another way than asked for so far, and why. The same on all ranks.
  [[nodiscard]] std::vector<std::string> fallbacks() const;
  /// Measures latency and bandwidth of each kind of way between ranks. Collective; all get the same. Changes
  /// no plans. Tenths of a second, longer over slow networks.
  std::vector<topology::Measurement> measure_ways() const;

  [[nodiscard]] Communicator& communicator() const noexcept;
  /// Writes on rank 0 alone; the other ranks' lines are dropped unless they are errors.
  [[nodiscard]] Log& log() const noexcept;
  /// For events of the program's own; does nothing unless `ContextOptions::timeline` names a file.
  [[nodiscard]] Timeline& timeline() const noexcept;

  /// Runs `work` on rank 0 while the others wait (their deadline is paused). An exception of `work`
  /// is thrown on every rank, agreed, with `name` in the message. Collective. If the job fails meanwhile, the
  /// exit report says which rank was in `name`, and which waited there.
  void root_only(std::string_view name, const std::function<void()>& work) const;

  /// Runs `work` on every rank, then agrees: if it threw anywhere, every rank throws the lowest
  /// failing rank's error (agreed; the message names that rank unless all failed alike). Collective,
  /// and `work` must not itself call collectives that a failed rank would miss. Named in the exit report as
  /// `root_only` is.
  void on_all_ranks(std::string_view name, const std::function<void()>& work,
                    WorkTime time = WorkTime::within_deadline) const;

  /// Broadcasts a string from `root`; returns it on every rank. Collective.
  std::string broadcast_string(std::string_view text, int root = 0) const;

  /// For errors that are not thrown on: tells the other ranks that this one cannot go on, and prints what
  /// `run` would. An agreed error is printed by rank 0 alone.
  void report(const Error& error) const;

  /// Runs a program's body and turns what it throws into an exit status, with one message on
  /// standard error: an agreed error is printed by rank 0 alone and returned by all ranks
  /// (2 for `invalid_argument`, else 1); any other error is printed by the rank that saw it, which
  /// then ends the whole job (MPI_Abort) because its peers may be waiting for it.
  int run(const std::function<int()>& body) const;

  /// For the library's own parts.
  explicit Context(std::shared_ptr<ContextState> state) noexcept;
  [[nodiscard]] ContextState& state() const noexcept { return *state_; }

 private:
  std::shared_ptr<ContextState> state_;
};

/// Settings of `run_in_process`. Of the environment only DDL_DEADLINE counts, where `context.deadline` is
/// left at its default.
struct InProcessOptions {
  ContextOptions context;
  /// Host name of each rank; empty: all on one host. Same meaning as DDL_HOST_ID per rank.
  std::vector<std::string> hosts;
};

/// Runs `body` on `ranks` threads, each with a context of its own in one job; works without MPI. They share
/// memory whatever hosts they pretend to be on. Returns when all have ended; rethrows the first exception,
/// after which the other ranks' pending collectives fail with `peer_failed`. 1 to 1024 ranks.
void run_in_process(int ranks, const std::function<void(Context&)>& body,
                    const InProcessOptions& wanted = InProcessOptions());

}  // namespace ddl
