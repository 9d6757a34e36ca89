#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "ddl/context.hpp"
#include "ddl/topology/plan.hpp"

struct CUstream_st;

/// @file
/// Collectives on GPUs. Available in builds with CUDA; link ddl::cuda.
namespace ddl {

/// A CUDA stream, as `cudaStream_t`; null is the default stream.
using DeviceStream = CUstream_st*;

/// Number of CUDA devices that this process sees, at least 1. Throws `unsupported` if none can be used; the
/// message says what was found and what to do.
int cuda_devices();

/// What carries data between the ranks' devices. A path that cannot be used is an error.
enum class DevicePathChoice {
  /// All that are available: the exchange inside hosts; NCCL if each rank has a device of its own; without
  /// NCCL, between hosts, UCX if it handles device memory, else the host's memory. `DeviceCommunicator::plan`
  /// says what each call uses. A fallback is a warning, and an error if ContextOptions::strict.
  automatic,
  exchange,  ///< The library's kernels, which meet in memory that all ranks have mapped. One host only.
  nccl,      ///< NCCL, loaded at run time (libnccl.so.2): over all ranks, or by dimension.
  /// UCX, if it was built with CUDA (UCX_TLS can disable that): sends and receives device memory directly, by
  /// GPUDirect RDMA where the fabric supports it, and kernels reduce what arrives. One host or several. A
  /// thread of each rank drives it and queues kernels while the call's stream waits, so a CUDA call that
  /// waits for the whole device (cudaFree) can block it.
  ucx,
  host,  ///< Page-locked memory and the host's engine, as in `Communicator`. Ranks must be processes.
};

/// Settings of a `DeviceCommunicator`.
struct DeviceOptions {
  /// CUDA's number of this rank's device; -1: LOCAL_RANK, or else the rank's index on its host, modulo the
  /// number of devices that the process sees (CUDA_VISIBLE_DEVICES). Devices that ranks share without need,
  /// or that differ, cause a warning, and an error if ContextOptions::strict.
  int device = -1;
  /// Whether the calling thread, and threads that it starts, are bound to the processors near the device.
  /// Applies only where each rank is a process whose thread may run on all of the host's processors.
  bool bind = true;
  /// Size in bytes of the staging buffers in device memory, at least 64 KiB; the smallest value of all ranks
  /// counts.
  ///
  /// - Exchange: data that the peers have not mapped (see `allocate`) goes through staging buffers of this
  ///   size, an input and an output. Not used where all ranks are threads of one process.
  /// - UCX: twice this size plus 16 MiB, for partial results, and the same again if hosts also form a
  ///   dimension. A larger reduction is cut. At least 1 KiB per rank.
  /// - By dimension: a quarter of it, between the dimensions of a reduce_scatter, all_gather or reduce. A
  ///   larger call is cut.
  /// - Several hosts: a quarter of it, at least 1 MiB, for data that travels in 16 bits (`DeviceWire`).
  /// - Reproducible contexts: this size, as working memory, unless the host's memory carries all data.
  std::size_t staging_bytes = std::size_t{64} << 20;
  /// What carries the data; the same on all ranks (else `mismatch`).
  DevicePathChoice path = DevicePathChoice::automatic;
};

/// Sets CUDA_DEVICE_MAX_CONNECTIONS=32 and CUDA_MODULE_LOADING=EAGER, where the environment does not set
/// them. For programs whose ranks are threads that share a device. CUDA reads the variables when it starts:
/// call this first in main, before any thread starts. Without them, streams share hardware queues, and the
/// first launch of a kernel waits for running kernels: a kernel can then wait, until the deadline, for
/// another that is queued behind it.
void set_cuda_environment();

/// Device memory that the ranks of a host have mapped, so that collectives on it need no copies. Owned by the
/// communicator and freed with it. See `DeviceCommunicator::allocate`.
struct DeviceMemory {
  std::byte* data = nullptr;  ///< Device address.
  std::size_t bytes = 0;      ///< Size.
};

/// The 16-bit type in which sums of f32 travel between hosts, and the memory for error feedback: see `Wire`.
struct DeviceWire {
  DataType type = DataType::bf16;  ///< bf16 or f16; the same on all ranks.
  /// Rounding errors that a call leaves for the next call of the same count: as many elements as the input,
  /// in device memory, zeros before the first call. Null: no error feedback.
  float* residual = nullptr;
};

/// Collectives on device memory among all ranks of a context. A call queues its work on a stream and returns
/// without waiting for it, unless the rank has 64 calls outstanding: it then blocks until there are fewer.
/// Types, operations, in-place rules and counts are those of `Communicator`. Not thread-safe; for the thread
/// that made it.
///
/// Order: every rank makes the same calls in the same order, each on a stream of its choice; a rank orders
/// its calls on different streams by events. A rank's kernels wait on the device for its peers' kernels. If
/// ranks share a device, none of them may therefore do anything between calls that waits for the device
/// (cudaMalloc, cudaFree, cudaDeviceSynchronize, a kernel's first launch); ranks that are threads also need
/// `set_cuda_environment`. The number of blocks is chosen so that the kernels of all ranks of a device, and
/// of all communicators of a process, are resident together. Processes that share a device take turns, which
/// is correct, but slow.
///
/// Plans: a call's plan (`plan`) is chosen for its size by predicted time on the graph of the ranks' GPUs
/// (`topology`); ddl-plan prints the same plan for that topology. Its dimensions are the ranks of a host and
/// the hosts, or all ranks at once. Each is carried by kernels that meet in mapped memory (cuda_ipc: CUDA IPC
/// between processes, plain pointers between threads), by NCCL, by a network that handles device memory, or
/// through host memory. With two dimensions a call is cut into chunks that overlap: an all-reduce is a
/// reduce-scatter inside the hosts, an all-reduce between them and an all-gather inside; other collectives
/// run as themselves in both dimensions. Hosts with different numbers of ranks cannot form dimensions; only a
/// network then keeps a hierarchy, and a note of the plan says so. DDL_OPTIONS="-mode n" (NCCL over all
/// ranks), "-mode b" (by dimension) and a grid ("-mode p:4x4") restrict the choice; "-mode r", "c" and "m"
/// restrict what a network does. A plan for devices in DDL_PLAN is used unchanged. A request that these
/// devices cannot fulfil is ignored with a warning (DDL_STRICT=1: `unsupported`). Plans are logged at
/// -dbg_level 1; ranks compare their hashes in each call.
///
/// The exchange: a small all-reduce is reduced completely by every rank (one_shot), between two meetings of
/// the ranks. In a larger one each rank reduces a part, a reduce-scatter and an all-gather in one kernel:
/// with n ranks and N bytes, a rank reads N and writes N bytes. Sums are in rank order, so all ranks have the
/// same bits, on every run and for every size.
///
/// Graphs: calls on a stream that is being captured become part of the graph, with the exchange and NCCL;
/// calls through UCX or host memory are refused (`unsupported`; see `can_be_captured`). A call is captured on
/// all ranks or on none. Each launch of the graph is then a call, and every rank launches it equally often.
/// Ranks that are threads capture in the mode "thread local", because a global capture forbids the other
/// ranks much of CUDA. Graphs must be destroyed before the communicator. Errors in a graph are reported by
/// the next `check`, `wait` or call; the exit report does not list calls of graphs.
///
/// Numbers: with `ContextOptions::reproducible`, reductions of floats have the same bits as those of
/// `Communicator`: for a given number of ranks the same on every path, topology and cut of the data, and on
/// hosts. Kernels convert the floats to integers, the path reduces these, and kernels round the sums; a call
/// is cut into parts that fit the working memory. No host waits. Sums and averages take up to six kernels
/// instead of one and 1.75 times the bytes (f64, f16, bf16: 2); up to 256 KiB, where all ranks get all
/// integers, one kernel less and 2.25 times (2.5). `min` and `max` take 1 times the bytes (16-bit: 1.5, or
/// 2), `prod`, in rank order, n/2 times. Through host memory the host reduces.
///
/// Errors: a kernel waits no longer than the context's deadline. NCCL's calls end when none of a rank's calls
/// has made progress for that time, UCX's when the call has not. An error on the device, or of the job, is
/// thrown by `check` and `wait`, and by every call after it: `timeout` and `mismatch` name the ranks;
/// `peer_failed` reports a peer that died or failed; `internal` names the CUDA call, the place, the rank and
/// the device. Outputs are then undefined.
class DeviceCommunicator {
 public:
  /// Selects the device in the calling thread. Collective. `context` must outlive the communicator. Throws,
  /// agreed: `unsupported` without a usable device, if `path` (or, if automatic, every path) is unavailable,
  /// if peers' memory cannot be mapped, or for more ranks than fit on a device; `invalid_argument` for bad
  /// options; `mismatch` for different paths.
  explicit DeviceCommunicator(const Context& context, const DeviceOptions& options = {});
  /// Waits for outstanding calls. Collective, unless an error has occurred.
  ~DeviceCommunicator();
  DeviceCommunicator& operator=(DeviceCommunicator&&) = delete;

  /// This rank's number in the context.
  [[nodiscard]] int rank() const noexcept;
  /// Number of ranks.
  [[nodiscard]] int size() const noexcept;
  /// CUDA's number of this rank's device, in this process.
  [[nodiscard]] int device() const noexcept;
  /// CUDA's name of this rank's device.
  [[nodiscard]] std::string device_name() const;
  /// The context that this was made with.
  [[nodiscard]] const Context& context() const noexcept;
  /// The graph of the devices, for which plans are chosen: its device r is rank r's GPU. From DDL_TOPOLOGY if
  /// that is set, else discovered.
  [[nodiscard]] const topology::Topology& topology() const noexcept;
  /// The plan that calls of `bytes` bytes use: its dimensions, what carries each, and the number of chunks.
  /// `bytes` are counted as for `Communicator::plan`. Not collective. Throws `invalid_argument` for a
  /// barrier, which has no plan.
  [[nodiscard]] topology::Plan plan(topology::Collective collective, std::size_t bytes, DataType type,
                                    std::optional<DataType> wire = {}) const;
  /// Whether such calls can become part of a graph; `bytes` as for `plan`. The same on all ranks.
  [[nodiscard]] bool can_be_captured(topology::Collective collective, std::size_t bytes, DataType type,
                                     std::optional<DataType> wire = {}) const;
  /// Whether the peers have mapped all of this memory, so that collectives on it need no copies.
  [[nodiscard]] bool reaches(const void* data, std::size_t bytes) const;
  /// Number of thread blocks of the exchange's largest kernels; 0 without the exchange.
  [[nodiscard]] int blocks() const noexcept;

  /// Allocates `bytes` bytes of zeroed device memory that the peers map; the same number on all ranks.
  /// Collective, and waits for the device: for set-up. Throws, agreed, `unsupported` if a device has too
  /// little memory.
  DeviceMemory allocate(std::size_t bytes);

  /// Queues an all_reduce of `count` elements on `stream`. See `Communicator::all_reduce`.
  ///
  /// This and the other collectives throw `invalid_argument` for null data, data that is not aligned to its
  /// type, an unknown root or an unsupported op, and the error that an earlier call failed with.
  void all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                  DeviceStream stream);
  /// Queues a reduce_scatter of pieces of `count` elements. See `Communicator::reduce_scatter`.
  void reduce_scatter(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                      DeviceStream stream);
  /// Queues an all_reduce of sums of f32 that travels in 16 bits in the plan's dimensions that have a wire.
  /// There each rank rounds its input once, and sums are rounded like other sums of `wire.type`.
  void all_reduce(const float* input, float* output, std::size_t count, const DeviceWire& wire,
                  DeviceStream stream);
  /// Queues a reduce_scatter of sums in the same way.
  void reduce_scatter(const float* input, float* output, std::size_t count, const DeviceWire& wire,
                      DeviceStream stream);
  /// Queues an all_gather of pieces of `count` elements. See `Communicator::all_gather`.
  void all_gather(const void* input, void* output, std::size_t count, DataType type, DeviceStream stream);
  /// Queues a broadcast of `count` elements. See `Communicator::broadcast`.
  void broadcast(const void* input, void* output, std::size_t count, DataType type, int root,
                 DeviceStream stream);
  /// Queues a reduce of `count` elements to `root`. See `Communicator::reduce`.
  void reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op, int root,
              DeviceStream stream);
  /// Queues a barrier: work queued behind it runs after every rank's stream has reached it.
  void barrier(DeviceStream stream);

  /// An event on the context's timeline, for the work that is queued on a stream while this object exists.
  using Scope = std::shared_ptr<void>;
  /// Begins an event `name` on the timeline's track "device", where the collectives are too; CUDA events
  /// measure it. `bytes`: the amount of data to show with it, or 0. Null if there is no timeline. Costs two
  /// CUDA events and does not wait. The stream must exist until the communicator ends, or until `release`.
  /// Throws `internal`.
  [[nodiscard]] Scope scope(const char* name, DeviceStream stream, std::uint64_t bytes = 0);

  /// Throws the error that has occurred, if any. Does not wait.
  void check();
  /// Waits for the work on the stream, as cudaStreamSynchronize does, and throws the error that has occurred,
  /// if any. Ends waiting kernels if a peer fails.
  void wait(DeviceStream stream);
  /// Waits as `wait` does, and forgets the stream: it may then be destroyed. Other streams with collectives
  /// must exist as long as this communicator.
  void release(DeviceStream stream);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ddl
