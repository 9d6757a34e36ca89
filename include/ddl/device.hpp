#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "ddl/context.hpp"
#include "ddl/topology/plan.hpp"

struct CUstream_st;

/// Collectives on GPUs. In builds with CUDA: link ddl::cuda.
namespace ddl {

/// A CUDA stream, as `cudaStream_t`; null is the default stream.
using DeviceStream = CUstream_st*;

/// What may carry data between ranks' devices.
enum class DevicePathChoice {
  /// Whatever there is: the exchange inside hosts, NCCL if each rank has a device of its own; without NCCL
  /// between hosts UCX if it knows devices' memory, else the host. `DeviceCommunicator::plan` says what each
  /// call takes. What is not as it should be is a warning, and an error if ContextOptions::strict.
  automatic,
  exchange,  ///< The library's kernels, which meet in memory that all ranks of the one host have mapped.
  nccl,      ///< NCCL, which is looked for when it is needed (libnccl.so.2): over all ranks, or by dimension.
  /// UCX, if it was built with CUDA (UCX_TLS may keep it from that): it sends and receives devices' memory as
  /// it is, by GPUDirect RDMA where the fabric has that, and kernels reduce what comes. One host or several.
  /// A thread of each rank's drives it, and queues kernels while the call's stream waits: what waits for the
  /// whole device meanwhile (cudaFree) may keep it from that.
  ucx,
  host,  ///< Page-locked memory and the host's engine, as `Communicator`; for ranks that are processes.
};

/// Options that decide which calls meet and how they are cut are compared, or the least of them counts.
struct DeviceOptions {
  /// CUDA's number of this rank's device; -1: LOCAL_RANK, or the rank's index on its host, modulo the number
  /// of devices that the process sees (CUDA_VISIBLE_DEVICES). Where ranks share one, or theirs differ, this
  /// is said in a warning, or, if ContextOptions::strict, an error.
  int device = -1;
  /// Whether the calling thread, and those that it starts, are to run on the processors near the device, if
  /// they may run on all of the host's now. Only where each rank is a process.
  bool bind = true;
  /// For data that the other processes have not mapped (see `allocate`): how much of it is exchanged at a
  /// time. Twice as much device memory is taken. At least 64 KiB. The least of what ranks ask for counts. Not
  /// used where all ranks are threads of one process. By UCX: for partial results, by which reductions may be
  /// cut; twice as much is taken, and 16 MiB, and all of it again where hosts also go by dimension; at least
  /// 1 KiB a rank as well. By dimension: a quarter of it for what is between the dimensions of a
  /// reduce_scatter, all_gather or reduce, which may be cut by that. With several hosts: a quarter of it
  /// for what travels in 16 bits (`DeviceWire`), at least 1 MiB. In reproducible contexts as much memory is
  /// taken for those reductions' working memory, also by NCCL and UCX.
  std::size_t staging_bytes = std::size_t{64} << 20;
  /// The same on all ranks.
  DevicePathChoice path = DevicePathChoice::automatic;
};

/// For programs whose ranks are threads that share a device: sets CUDA_DEVICE_MAX_CONNECTIONS=32 and
/// CUDA_MODULE_LOADING=EAGER, where the environment does not say otherwise. CUDA reads them when it starts:
/// call this first in main, before there are threads. Without them work of several streams stands in one
/// queue of the device, and a kernel that is launched for the first time waits for those that run: a kernel
/// may then wait for one that stands behind it, until the deadline.
void set_cuda_environment();

/// Device memory that the ranks of a host have mapped, so that collectives on it need no copies. Zeros at
/// first. Owned by the communicator: valid as long as that is.
struct DeviceMemory {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

/// What sums of f32 travel as between hosts: see `Wire`.
struct DeviceWire {
  DataType type = DataType::bf16;  ///< bf16 or f16.
  /// As many elements as the input, in the device's memory, zeros before the first call: what roundings have
  /// left, which is added to what the next call of the same count rounds. Null: no error feedback.
  float* residual = nullptr;
};

/// Collectives on device memory among all ranks of a context. They are queued on a stream and return at once;
/// no caller waits for another, but a rank has at most 64 calls under way: the next one waits until there are
/// fewer.
///
/// How a call is done is a plan (`plan`), chosen for its size by predicted time on the graph of the ranks'
/// GPUs (`topology`), and the same that ddl-plan prints for that topology. Its dimensions are the ranks of a
/// host and the hosts, or all ranks at once, and each is carried by kernels that find each other in memory
/// that all have mapped (cuda_ipc: CUDA IPC between processes, plain pointers between threads), by NCCL, by a
/// network that takes devices' memory, or through the hosts' memory. By dimension a call goes in chunks,
/// which overlap: an all-reduce is a reduce-scatter inside the hosts, an all-reduce between them and an
/// all-gather inside; the other collectives are the same in both dimensions. Hosts with different numbers of
/// ranks have no groups by dimension: only a network then keeps a hierarchy, and a note of the plan says so.
/// DDL_OPTIONS="-mode n" (NCCL over all ranks), "-mode b" (by dimension) and a grid ("-mode p:4x4") narrow
/// the choice; "-mode r", "c" and "m" narrow what a network does. DDL_PLAN's plan for devices is taken as it
/// is. What they ask for and these devices cannot do is a warning, and left out (DDL_STRICT=1:
/// `unsupported`). Plans are logged at -dbg_level 1; ranks compare their hashes in each call.
///
/// Calls on a stream that is being captured become part of the graph, by the exchange and by NCCL; each
/// launch of the graph is then a call like others, and every rank launches it as often. Those through UCX or
/// the host's memory are refused (`unsupported`). Ranks that are threads capture in the mode "thread local":
/// a global capture forbids the other ranks much of CUDA. Graphs must end before the communicator does. What
/// goes wrong in one is found by the next `check`, `wait` or call; the exit report does not list calls of
/// graphs.
///
/// Every rank makes the same calls, in the same order, each on a stream of its choice; calls of one rank on
/// several streams must be ordered by events. Kernels of a rank wait on the device for those of the others.
/// So no rank may do in between what waits for its device (cudaMalloc, cudaFree, cudaDeviceSynchronize, a
/// kernel's first launch), if another rank uses the same device, as threads of one process may (they also
/// want `set_cuda_environment`). The number of blocks is such that the kernels of all ranks of a device, and
/// of all communicators of a process, fit on it together; processes that share one take turns (correct, and
/// slow).
///
/// The exchange: small all-reduces are reduced whole by every rank (one_shot), after one meeting and before
/// another; of others each rank does a part, as a reduce-scatter and an all-gather in
/// one: with n ranks and N bytes, a rank reads N and writes N bytes. Sums are made in the order of ranks, so
/// that all have the same bits, on every run and whatever the size. Types, operations, in-place rules and
/// counts are those of `Communicator`.
///
/// With `ContextOptions::reproducible`, reductions of floats have the bits of `Communicator`'s: for a number
/// of ranks the same on every path, topology and cut of the data, and on hosts. Kernels make integers of the
/// floats, the path reduces these, and kernels round the sums; a call is cut into parts that fit the working
/// memory. No host waits for that either. Sums and averages take up to six kernels in place of one, and 1.75
/// times the bytes (f64, f16, bf16: 2); up to 256 KiB, where all ranks get all integers, one kernel less
/// and 2.25 times (2.5). `min` and `max` take 1 times the bytes (16-bit: 1.5, or 2), `prod`, in the order of
/// ranks, n/2 times. Through the host's memory it is the host that reduces.
///
/// A kernel waits no longer than the context's deadline; NCCL's are ended when none of a rank's calls has got
/// on for so long, UCX's when nothing of a call has. What goes wrong on the device, or in the job meanwhile,
/// is thrown by `check` and `wait`, and by every call after that: `timeout` and `mismatch` name the ranks;
/// `peer_failed` comes from the job's watch; `internal` gives the CUDA call, the place, the rank and the
/// device. Outputs are then undefined. Not thread-safe; for the thread that made it.
class DeviceCommunicator {
 public:
  /// Selects the device in the calling thread. Collective. Throws, agreed: `unsupported` without a usable
  /// device, where `path` cannot be, or, if that is automatic, none of them, where peers' memory cannot be
  /// mapped, or for more ranks than a device has room for; `invalid_argument` for bad options.
  explicit DeviceCommunicator(const Context& context, const DeviceOptions& options = {});
  /// Waits for its calls. Collective, unless something has failed.
  ~DeviceCommunicator();
  DeviceCommunicator(const DeviceCommunicator&) = delete;
  DeviceCommunicator& operator=(const DeviceCommunicator&) = delete;

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int size() const noexcept;
  /// CUDA's number, and its name.
  [[nodiscard]] int device() const noexcept;
  [[nodiscard]] std::string device_name() const;
  [[nodiscard]] const Context& context() const noexcept;
  /// What the devices are and how they are wired: device r is rank r's GPU. DDL_TOPOLOGY's, if that is set.
  [[nodiscard]] const topology::Topology& topology() const noexcept;
  /// The plan by which calls of `bytes` bytes are done, counted as for `Communicator::plan`: its dimensions,
  /// what carries each, and in how many chunks. Not collective. Throws `invalid_argument` for a barrier,
  /// which needs none.
  [[nodiscard]] topology::Plan plan(topology::Collective collective, std::size_t bytes, DataType type,
                                    std::optional<DataType> wire = {}) const;
  /// Whether the other ranks reach that memory, so that collectives on it need no copies.
  [[nodiscard]] bool reaches(const void* data, std::size_t bytes) const;
  /// Blocks of the exchange's largest kernels; 0 if there is none.
  [[nodiscard]] int blocks() const noexcept;

  /// `bytes` bytes, the same on all ranks. Collective, and waits for the device: for set-up. Throws, agreed,
  /// `unsupported` if some device has no more.
  DeviceMemory allocate(std::size_t bytes);

  /// See `Communicator`. They throw `invalid_argument` for null data, an unknown root, or an op on data that
  /// it is not for, and what an earlier call failed with.
  void all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                  DeviceStream stream);
  void reduce_scatter(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                      DeviceStream stream);
  /// Sums of f32, in 16 bits in the plan's dimensions that have a wire: each rank rounds what it has there
  /// once, and what is added up there is rounded as `type`'s sums are. All ranks give the same type.
  void all_reduce(const float* input, float* output, std::size_t count, const DeviceWire& wire,
                  DeviceStream stream);
  void reduce_scatter(const float* input, float* output, std::size_t count, const DeviceWire& wire,
                      DeviceStream stream);
  void all_gather(const void* input, void* output, std::size_t count, DataType type, DeviceStream stream);
  void broadcast(const void* input, void* output, std::size_t count, DataType type, int root,
                 DeviceStream stream);
  void reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op, int root,
              DeviceStream stream);
  /// What is queued behind it runs once every rank's stream has come here.
  void barrier(DeviceStream stream);

  /// While it lives: what is queued on a stream, for the context's timeline, where it is on the track
  /// "device" with the collectives and what reducers do, by CUDA's events and on the clock of all ranks.
  /// Costs two events; null where there is no timeline. Does not wait. The stream must live until the
  /// communicator ends, or `release`.
  using Scope = std::shared_ptr<void>;
  /// `bytes` that it is about, or 0. Throws `internal`.
  [[nodiscard]] Scope scope(const char* name, DeviceStream stream, std::uint64_t bytes = 0);

  /// Throws what has failed so far. Does not wait.
  void check();
  /// Waits for what is queued on the stream, as cudaStreamSynchronize, and throws what has failed. If another
  /// rank fails meanwhile, kernels that wait are ended.
  void wait(DeviceStream stream);
  /// `wait`, for a stream that is about to be destroyed: those that collectives were queued on must otherwise
  /// live as long as this.
  void release(DeviceStream stream);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ddl
