// NCCL for emulated devices: a libnccl.so.2 whose kernels meet in memory that their processes share. As with
// NCCL, a kernel waits forever for ranks that do not arrive, counts are not compared, and the calls of a
// communicator run in order. A kernel is one block. Has only the functions that the library uses.

#include <fcntl.h>
#include <nccl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/kernels/reduce.hpp"
#include "device/emulated/emulated_cuda.hpp"

namespace {

using ddl::DataType;
using ddl::ReduceOp;

constexpr int most_ranks = 16;
constexpr std::size_t slot_bytes = std::size_t{64} << 10;

struct Shared {
  std::atomic<int> joined;
  std::atomic<std::uint32_t> arrived;
  std::atomic<std::uint32_t> generation;
  alignas(64) std::byte slots[most_ranks][slot_bytes];
};

struct Id {
  pid_t process;
  int file;
};

/// State of a communicator that its kernels use and keep alive.
struct Room {
  explicit Room(Shared* opened) : shared(opened) {}
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  ~Room() { munmap(shared, sizeof(Shared)); }
  Shared* shared;
  int rank = 0;
  int ranks = 1;
  std::atomic<bool> is_over = false;  // revoked or aborted: kernels stop waiting
  std::atomic_flag is_in_use;         // held by a kernel; a kernel of a graph may meet one outside of graphs
};

struct Ended {};

template <typename IsThere>
void wait_until(const Room& room, int device, const IsThere& is_there) {
  for (emulated_cuda::Patience patience; !is_there(); patience.pause()) {
    if (room.is_over || emulated_cuda::is_lost(device)) throw Ended();
  }
}

void meet(Room& room, int device) {
  if (room.is_over) throw Ended();
  const std::uint32_t generation = room.shared->generation.load();
  if (room.shared->arrived.fetch_add(1) + 1 == static_cast<std::uint32_t>(room.ranks)) {
    room.shared->arrived.store(0);
    room.shared->generation.fetch_add(1);
    return;
  }
  wait_until(room, device, [&] { return room.shared->generation.load() != generation; });
}

DataType type_of(ncclDataType_t type) {
  switch (type) {
    case ncclUint8:
      return DataType::u8;
    case ncclInt32:
      return DataType::i32;
    case ncclInt64:
      return DataType::i64;
    case ncclFloat32:
      return DataType::f32;
    case ncclFloat64:
      return DataType::f64;
    case ncclFloat16:
      return DataType::f16;
    case ncclBfloat16:
      return DataType::bf16;
    default:
      std::abort();
  }
}

ReduceOp op_of(ncclRedOp_t op) {
  switch (op) {
    case ncclSum:
      return ReduceOp::sum;
    case ncclAvg:
      return ReduceOp::avg;
    case ncclMin:
      return ReduceOp::min;
    case ncclMax:
      return ReduceOp::max;
    case ncclProd:
      return ReduceOp::prod;
    default:
      std::abort();
  }
}

/// Exchanges `count` elements of each rank; calls `write(first, elements, sources)` for each part.
template <typename Write>
void exchange(Room& room, int device, const std::byte* input, std::size_t count, std::size_t element,
              const Write& write) {
  const std::size_t most = slot_bytes / element;
  for (std::size_t first = 0; first < count; first += most) {
    const std::size_t elements = std::min(most, count - first);
    if (input != nullptr)
      std::memcpy(room.shared->slots[room.rank], input + first * element, elements * element);
    meet(room, device);
    write(first, elements);
    meet(room, device);
  }
}

}  // namespace

/// A communicator. A thread that uses it keeps it alive, because another thread may abort it.
struct State {
  explicit State(Shared* shared) : room(std::make_shared<Room>(shared)) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    for (const cudaEvent_t event : {last, captured}) {
      if (event != nullptr) cudaEventDestroy(event);
    }
  }
  std::shared_ptr<Room> room;
  std::mutex mutex;                // protects `capture`
  cudaEvent_t last = nullptr;      // after its last kernel outside of captures
  cudaEvent_t captured = nullptr;  // after its last kernel in `capture`
  unsigned long long capture = 0;
};

struct ncclComm {
  std::shared_ptr<State> state;
};

namespace {

constexpr char nccl_kernel = 0;
constexpr unsigned block_threads = 512;

bool is_ok(cudaError_t error) { return error == cudaSuccess; }

/// Queues a kernel in the order of the communicator's calls, within each capture and outside of captures. The
/// launch blocks while the device's launch queue is full.
template <typename Kernel>
ncclResult_t queue(ncclComm_t communicator, cudaStream_t stream, const Kernel& kernel) {
  const std::shared_ptr<State> state = communicator->state;
  const std::shared_ptr<Room> room = state->room;
  if (room->is_over) return ncclInvalidUsage;
  const unsigned long long capture = emulated_cuda::capture_of(stream);
  bool is_first = false;
  if (capture != 0) {
    const std::lock_guard lock(state->mutex);
    is_first = std::exchange(state->capture, capture) != capture;
  }
  const cudaEvent_t last = capture == 0 ? state->last : state->captured;
  if (!is_first && !is_ok(cudaStreamWaitEvent(stream, last, 0))) return ncclUnhandledCudaError;
  const auto body = [room, kernel](const emulated_cuda::Spot& spot) {
    try {
      wait_until(*room, spot.device, [&] { return !room->is_in_use.test_and_set(); });
    } catch (const Ended&) {
      return;
    }
    try {
      kernel(*room, spot.device);
    } catch (const Ended&) {
    }
    room->is_in_use.clear();
  };
  const emulated_cuda::Launch launch{.kernel = &nccl_kernel,
                                     .grid = dim3(1),
                                     .threads = dim3(block_threads),
                                     .stream = stream,
                                     .waits = true};
  if (!is_ok(emulated_cuda::launch(launch, body))) return ncclUnhandledCudaError;
  return is_ok(cudaEventRecord(last, stream)) ? ncclSuccess : ncclUnhandledCudaError;
}

void reduce_slots(const Room& room, DataType type, ReduceOp op, std::byte* target, std::size_t elements) {
  std::vector<const std::byte*> sources;
  for (int rank = 0; rank < room.ranks; ++rank) sources.push_back(room.shared->slots[rank]);
  ddl::collectives::reduce(type, op, std::span(&target, 1), sources, elements,
                           op == ReduceOp::avg ? room.ranks : 1);
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : "an emulated error";
}
const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const Id own{getpid(), memfd_create("emulated_nccl", MFD_CLOEXEC)};
  if (own.file < 0 || ftruncate(own.file, sizeof(Shared)) != 0) return ncclSystemError;
  std::memcpy(id, &own, sizeof own);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* configuration) {
  if (ranks > most_ranks) return ncclInvalidArgument;
  Id from{};
  std::memcpy(&from, &id, sizeof from);
  const std::string path = "/proc/" + std::to_string(from.process) + "/fd/" + std::to_string(from.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return ncclSystemError;
  void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return ncclSystemError;
  auto state = std::make_shared<State>(static_cast<Shared*>(memory));
  Room& room = *state->room;
  room.rank = rank;
  room.ranks = ranks;
  cudaFuncAttributes attributes{};
  if (!is_ok(cudaFuncGetAttributes(&attributes, &nccl_kernel)) ||
      !is_ok(cudaEventCreateWithFlags(&state->last, cudaEventDisableTiming)) ||
      !is_ok(cudaEventCreateWithFlags(&state->captured, cudaEventDisableTiming)))
    return ncclUnhandledCudaError;
  *communicator = new ncclComm{state};
  room.shared->joined.fetch_add(1);
  if (configuration != nullptr && configuration->blocking == 0) return ncclInProgress;
  for (emulated_cuda::Patience patience; room.shared->joined.load() < ranks;) patience.pause();
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(communicator, ranks, id, rank, nullptr);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* state) {
  const Room& room = *communicator->state->room;
  *state = room.shared->joined.load() < room.ranks ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t communicator) {
  const std::shared_ptr<State> state = communicator->state;
  if (state->room->is_over) return ncclInvalidUsage;
  return is_ok(cudaEventSynchronize(state->last)) ? ncclSuccess : ncclUnhandledCudaError;
}
ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  delete communicator;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  communicator->state->room->is_over = true;
  return ncclCommDestroy(communicator);
}
/// Frees nothing, so other threads may be inside calls. Exists since NCCL 2.28.
ncclResult_t ncclCommRevoke(ncclComm_t communicator, int flags) {
  if (flags != 0) return ncclInvalidArgument;
  communicator->state->room->is_over = true;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* input, void* output, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t communicator, cudaStream_t stream) {
  return queue(communicator, stream, [=, type = type_of(type), op = op_of(op)](Room& room, int device) {
    const std::size_t element = ddl::size_of(type);
    exchange(room, device, static_cast<const std::byte*>(input), count, element,
             [&](std::size_t first, std::size_t elements) {
               reduce_slots(room, type, op, static_cast<std::byte*>(output) + first * element, elements);
             });
  });
}

ncclResult_t ncclReduce(const void* input, void* output, size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t communicator, cudaStream_t stream) {
  return queue(communicator, stream, [=, type = type_of(type), op = op_of(op)](Room& room, int device) {
    const std::size_t element = ddl::size_of(type);
    exchange(room, device, static_cast<const std::byte*>(input), count, element,
             [&](std::size_t first, std::size_t elements) {
               if (room.rank == root)
                 reduce_slots(room, type, op, static_cast<std::byte*>(output) + first * element, elements);
             });
  });
}

ncclResult_t ncclReduceScatter(const void* input, void* output, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t communicator, cudaStream_t stream) {
  return queue(communicator, stream, [=, type = type_of(type), op = op_of(op)](Room& room, int device) {
    const std::size_t element = ddl::size_of(type);
    // The output may overlap the input, so it is written after all ranks have read.
    std::vector<std::byte> own(count * element);
    for (int piece = 0; piece < room.ranks; ++piece) {
      const auto* const from =
          static_cast<const std::byte*>(input) + static_cast<std::size_t>(piece) * count * element;
      exchange(room, device, from, count, element, [&](std::size_t first, std::size_t elements) {
        if (room.rank == piece) reduce_slots(room, type, op, own.data() + first * element, elements);
      });
    }
    std::memcpy(output, own.data(), own.size());
  });
}

ncclResult_t ncclAllGather(const void* input, void* output, size_t count, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream) {
  return queue(communicator, stream, [=, type = type_of(type)](Room& room, int device) {
    const std::size_t element = ddl::size_of(type);
    exchange(room, device, static_cast<const std::byte*>(input), count, element,
             [&](std::size_t first, std::size_t elements) {
               for (int rank = 0; rank < room.ranks; ++rank) {
                 std::memcpy(static_cast<std::byte*>(output) +
                                 (static_cast<std::size_t>(rank) * count + first) * element,
                             room.shared->slots[rank], elements * element);
               }
             });
  });
}

ncclResult_t ncclBroadcast(const void* input, void* output, size_t count, ncclDataType_t type, int root,
                           ncclComm_t communicator, cudaStream_t stream) {
  return queue(communicator, stream, [=, type = type_of(type)](Room& room, int device) {
    const std::size_t element = ddl::size_of(type);
    const auto* const from = room.rank == root ? static_cast<const std::byte*>(input) : nullptr;
    exchange(room, device, from, count, element, [&](std::size_t first, std::size_t elements) {
      std::memcpy(static_cast<std::byte*>(output) + first * element, room.shared->slots[root],
                  elements * element);
    });
  });
}

}  // extern "C"
