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

/// Whether plans are chosen by measured latencies and bandwidths instead of the nominal ones of each kind of
/// link.
enum class ProbeUse : std::uint8_t {
  off,     ///< Nominal figures.
  cached,  ///< Measured figures if the cache has some for this topology (from `on` or `ddl-topo probe`).
  on,      ///< Like `cached`; if the cache has none, measures at start-up and stores the figures.
};

/// The transport between ranks that share no memory.
enum class NetworkUse : std::uint8_t {
  automatic,  ///< UCX; falls back to MPI, with a warning, where UCX is unavailable.
  ucx,        ///< UCX, or an error.
  mpi,        ///< MPI; the job must have been started by MPI.
};

/// How long ranks wait for each other in `Context::on_all_ranks`.
enum class WorkTime : std::uint8_t {
  within_deadline,  ///< The deadline of any collective; it includes the work.
  unlimited,        ///< All ranks arrive within the deadline; the work itself has no deadline.
};

/// Settings of a job. `from_environment` fills them from the variables named here.
struct ContextOptions {
  /// Every blocking operation fails with `ErrorCode::timeout` after this time; 1 ms to 1e9 s. DDL_DEADLINE
  /// (in seconds).
  std::chrono::milliseconds deadline{std::chrono::seconds(600)};
  /// Name of this rank's host; ranks with the same name share memory. Empty: the machine's host name and boot
  /// id. DDL_HOST_ID lets ranks of one machine pretend to be on several.
  std::string host_id;
  /// The transport between hosts; the same on all ranks. DDL_NETWORK=auto, ucx or mpi.
  NetworkUse network = NetworkUse::automatic;
  /// Which kinds of plans compete for each collective: all of them, rings only, ... DDL_OPTIONS="-mode r".
  topology::Mode mode = topology::Mode::explore;
  /// Restricts plans to this grid of workers, in the format of `Decomposition::parse`; empty: any grid. Like
  /// `plans`, it applies to communicators of all ranks in their order. DDL_OPTIONS="-mode p:4x4".
  std::string decomposition;
  /// Plans to use unchanged: for each collective at most one on hosts and one on devices, told apart by their
  /// carriers. Plans for all other collectives are chosen. DDL_PLAN: comma-separated names of files that
  /// `to_json` wrote.
  std::vector<topology::Plan> plans;
  /// The topology that the ranks run on: a preset ("ac922:4") or a file, which rank 0 reads; rank r is its
  /// device r. Empty: discovered. DDL_TOPOLOGY.
  std::string topology;
  /// A prefix NAME of files: rank 0 writes the topology that plans are chosen for to NAME.json, and the one
  /// for collectives on devices to NAME.devices.json. `ddl-plan --topology FILE` then chooses the same plans
  /// as the job. Empty: no files. DDL_SAVE_TOPOLOGY.
  std::string save_topology;
  /// Use of measured figures of links. DDL_PROBE=off, cached (the default of `from_environment`) or on.
  ProbeUse probe = ProbeUse::off;
  /// The directory where measured figures are cached; empty: no cache. DDL_CACHE_DIR, else
  /// $XDG_CACHE_HOME/ddl, else ~/.cache/ddl.
  std::string cache_directory;
  /// Makes every fallback (another network, a plan whose carrier is unavailable, ranks of a host that cannot
  /// share memory) an error `unsupported` on all ranks instead of a warning. DDL_STRICT=0 or 1.
  bool strict = false;
  /// Makes reductions of floats give the same bits for a given number of ranks, whatever the topology, plans,
  /// placement and cuts of the data, at the cost of more bytes: see `Communicator`. DDL_REPRODUCIBLE=0 or 1.
  bool reproducible = false;
  /// Makes gradient reducers check gradients in the host's memory (`invalid_argument`, on the rank that has
  /// the problem), and compare the parameters that `broadcast_parameters` was given after every step
  /// (`mismatch`, on all ranks). What is noticed of gradients:
  /// - at `ready`: memory that is not mapped any more, as after large vectors were freed; memory that holds
  /// just
  ///   what the last step left, because backward writes elsewhere: to a vector that has moved, whose old
  ///   memory still has its content. Freed memory that other data have overwritten is not noticed; nor can a
  ///   gradient that is the same in every step be told from one that has moved, so leave this off for such a
  ///   model;
  /// - when its bucket is reduced: a gradient that was written to after `ready`.
  /// Reads each gradient and each parameter several times a step. DDL_CHECK=0 or 1.
  bool check = false;
  /// A prefix NAME of files that a failed job writes: rank 0 writes the exit report to NAME.json, and rank 3
  /// its last 256 collectives to NAME.rank3.txt. Empty: no files. DDL_REPORT.
  std::string report;
  /// The file for a trace of all ranks' events (see `Timeline`); the same on all ranks. Empty: no trace.
  /// DDL_TIMELINE.
  std::string timeline;
  /// How many events of each thread the trace keeps: the newest ones. DDL_TIMELINE_EVENTS.
  std::size_t timeline_events = std::size_t{1} << 17;
  /// Every how many steps gradient reducers log which rank was late and how long each dimension took; 0:
  /// never. The same on all ranks. DDL_OPTIONS="-dump_iter 100".
  int dump_iterations = 0;
  /// For finding the collective that causes a device error. 1: waits for each collective on a device; 2: also
  /// waits, before each, for the work that is already queued on the device. DDL_OPTIONS="-dev_sync 1".
  int device_sync = 0;
  /// An option of IBM's library, accepted for existing scripts. It has no effect, which is logged.
  /// DDL_OPTIONS="-rebind_iter 100".
  int rebind_iterations = 0;
  /// 0: errors and warnings; 1: also one line for each plan that is used and a summary at the end (rank 0's
  /// level counts); 2: also every choice and fallback. DDL_OPTIONS="-dbg_level 1", else DDL_DEBUG_LEVEL.
  int debug_level = 0;

  /// Reads the variables above, then `flags`, which are spelt as
  /// in DDL_OPTIONS; later sources override earlier ones (see ddl/options.hpp). Throws `invalid_argument`,
  /// naming the source of the value (`flags_origin` for `flags`), what was found and what was expected; for
  /// an unknown variable DDL_..., also the nearest known one. Also throws as `plan_from_json` does.
  static ContextOptions from_environment(std::string_view flags = {},
                                         std::string_view flags_origin = "flags");
};

/// One worker's membership in the job, or in a group of the job's ranks (`split`): its rank, the communicator
/// of all ranks, agreement on errors, and work for rank 0 alone.
///
/// A handle: copies refer to the same membership. Reducers, checkpoints and other objects made with a context
/// keep it alive. When the last handle is destroyed, this rank waits for its outstanding collectives and
/// leaves the job (under mpirun: MPI_Finalize, if this context called MPI_Init and no error has occurred).
/// Not thread-safe: for one thread. Its communicators may be used by any thread.
class Context {
 public:
  /// Joins the job that started this process, with the options of `ContextOptions::from_environment`.
  ///
  /// - Under mpirun, or if the program has called MPI_Init: MPI's ranks. Ranks on one host share memory;
  ///   hosts communicate through UCX, else through MPI. If the program has not called MPI_Init, this function
  ///   does, after it has set environment variables OMPI_MCA_* (those that are unset) that silence Open MPI's
  ///   warnings about forks, unused networks and containers. Since MPI cannot be started again, a process can
  ///   then join a job only once.
  /// - If RANK and WORLD_SIZE are set, as other launchers do: WORLD_SIZE processes of one machine, which find
  ///   each other through a Unix socket. DDL_SOCKET names it, a path or "@name", the same for all; if unset,
  ///   the name is made from the user and MASTER_PORT, or else the session.
  /// - Otherwise: a job of one rank.
  ///
  /// Collective. Throws, agreed, `invalid_argument` for bad options and `mismatch` if options that ranks must
  /// share differ; throws `invalid_argument` for bad launcher variables, `timeout` and `peer_failed` if not
  /// all ranks arrive, `transport` if they cannot be connected, `unsupported` for a job of mpirun in a build
  /// without MPI.
  static Context from_environment();
  /// The same with `options` instead of those of the environment.
  static Context from_environment(const ContextOptions& options);

  /// Makes a job of part of an MPI program: its ranks are those of `communicator`, in their order. The other
  /// processes of MPI_COMM_WORLD take no part and may form another job. `communicator` is the address of an
  /// MPI_Comm, so that this header does not need mpi.h; the communicator is duplicated and may be freed
  /// afterwards. MPI must be initialized and must stay so while the context exists. Collective over
  /// `communicator`. Throws as `from_environment` does; also `invalid_argument` for MPI_COMM_NULL, for an
  /// intercommunicator and if MPI is not initialized, and `unsupported` in a build without MPI.
  static Context from_mpi(const void* communicator, const ContextOptions& options);

  /// Runs a whole program: makes a context from the environment and runs `body` as `run` does. An error at
  /// start-up is also printed once and turned into the status that `run` would return. Collective.
  static int run_from_environment(const std::function<int(Context&)>& body);

  /// Makes a context of the ranks that give the same `color` (0 or more), ordered by `key`, then by rank.
  /// Reducers, broadcasts, checkpoints and samplers made with it involve only these ranks, and its rank 0
  /// logs for the group. Options, the deadline and the timeline are the job's. Collective. Throws, agreed,
  /// `invalid_argument` for a negative color, and `unsupported` as `Communicator::split` does.
  [[nodiscard]] Context split(int color, int key = 0) const;

  /// This rank's number in the job or group, 0 to size() - 1.
  [[nodiscard]] int rank() const noexcept;
  /// Number of ranks of the job or group.
  [[nodiscard]] int size() const noexcept;
  /// This rank's index among the ranks of its host, 0 to local_size() - 1.
  [[nodiscard]] int local_rank() const noexcept;
  /// Number of ranks on this rank's host.
  [[nodiscard]] int local_size() const noexcept;
  /// Number of hosts.
  [[nodiscard]] int hosts() const noexcept;
  /// Whether a thread of the library advances `_async` calls; without one, they advance only while a thread
  /// waits for them or tests them.
  [[nodiscard]] bool has_progress_thread() const noexcept;
  /// Whether this is rank 0.
  [[nodiscard]] bool is_root() const noexcept { return rank() == 0; }
  /// The job's options.
  [[nodiscard]] const ContextOptions& options() const noexcept;
  /// The topology that plans are chosen for; the job's rank r is its device r, also in a group. Where the
  /// ranks are threads, it is discovered by the first call.
  [[nodiscard]] std::shared_ptr<const topology::Topology> topology() const;
  /// The fallbacks so far, with their reasons. The same on all ranks.
  [[nodiscard]] std::vector<std::string> fallbacks() const;
  /// Measures latency and bandwidth of each kind of path between ranks; all ranks get the same result.
  /// Changes no plans. Collective. Takes tenths of a second, more over slow networks.
  std::vector<topology::Measurement> measure_ways() const;

  /// The communicator of all ranks of the job or group. Valid as long as the context.
  [[nodiscard]] Communicator& communicator() const noexcept;
  /// The log of the job or group: only rank 0's lines are written, and errors of any rank.
  [[nodiscard]] Log& log() const noexcept;
  /// The timeline, for the program's own events; does nothing unless `ContextOptions::timeline` names a file.
  [[nodiscard]] Timeline& timeline() const noexcept;

  /// Runs `work` on rank 0 while the other ranks wait, with their deadline paused. If `work` throws, every
  /// rank throws the error, agreed, with `name` in the message. If the job fails meanwhile, the exit report
  /// says which rank was in `name` and which ranks waited there. Collective.
  void root_only(std::string_view name, const std::function<void()>& work) const;

  /// Runs `work` on every rank and agrees on the outcome: if `work` threw on any rank, every rank throws the
  /// lowest failing rank's error, agreed; the message names that rank unless all ranks failed alike. `work`
  /// must not call collectives that a failed rank would miss. `name` appears in the exit report as for
  /// `root_only`. Collective.
  void on_all_ranks(std::string_view name, const std::function<void()>& work,
                    WorkTime time = WorkTime::within_deadline) const;

  /// Returns `root`'s `text` on every rank. Collective.
  std::string broadcast_string(std::string_view text, int root = 0) const;

  /// For errors that the program catches for good: prints the message that `run` would print and, unless the
  /// error is agreed, tells the other ranks that this rank cannot go on. An agreed error is printed by rank 0
  /// alone.
  void report(const Error& error) const;

  /// Runs a program's `body` and returns its result. If it throws, prints one message on standard error and
  /// returns an exit status: 2 for `invalid_argument`, else 1. An agreed error is printed by rank 0 alone and
  /// returned by all ranks. Any other error is printed by the rank that throws it, which then ends the whole
  /// job (MPI_Abort), because its peers may be waiting for it.
  int run(const std::function<int()>& body) const;

  /// For the library itself.
  explicit Context(std::shared_ptr<ContextState> state) noexcept;
  /// For the library itself.
  [[nodiscard]] ContextState& state() const noexcept { return *state_; }

 private:
  std::shared_ptr<ContextState> state_;
};

/// Settings of `run_in_process`. The environment is not read, except that DDL_DEADLINE applies if
/// `context.deadline` has its default value.
struct InProcessOptions {
  ContextOptions context;  ///< Options of every rank.
  /// Host name of each rank, with the meaning of DDL_HOST_ID; empty: all ranks on one host.
  std::vector<std::string> hosts;
};

/// Runs `body` on `ranks` threads, 1 to 1024, each with a context of its own in one job. Needs no MPI. The
/// ranks share memory, whatever hosts `wanted` puts them on. Returns when all threads have ended. If a body
/// throws, the other ranks' pending collectives fail with `peer_failed`, unless the error is agreed, and this
/// function rethrows the exception that came first. Throws `invalid_argument` for bad arguments.
void run_in_process(int ranks, const std::function<void(Context&)>& body,
                    const InProcessOptions& wanted = InProcessOptions());

}  // namespace ddl
