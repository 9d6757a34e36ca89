#include "ddl/device/runtime/peer_memory.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <random>
#include <utility>

#include "collectives/device/cuda_check.hpp"
#include "ddl/error.hpp"

namespace ddl::device {
namespace {

/// CUDA packs smaller allocations into blocks of this size, and an IPC handle maps a whole block.
constexpr std::size_t block_bytes = std::size_t{2} << 20;

/// A rank's memory, as exchanged between the members.
struct Offer {
  PeerMemory::ProcessToken process;
  int device;
  std::byte* memory;
  cudaIpcMemHandle_t handle;
};

void reach(int peer, const Offer& offer) {
  int own = 0;
  check_cuda(cudaGetDevice(&own), "cudaGetDevice");
  if (offer.device == own) return;
  const cudaError_t result = cudaDeviceEnablePeerAccess(offer.device, 0);
  if (result == cudaSuccess) return;
  cudaGetLastError();
  if (result == cudaErrorPeerAccessAlreadyEnabled) return;
  throw Error(
      ErrorCode::unsupported,
      fmt::format(
          "CUDA device {} cannot reach device {} of rank {}: {} (nvidia-smi topo -p2p r shows who can)", own,
          offer.device, peer, cudaGetErrorString(result)));
}

std::byte* map(int peer, const Offer& offer) {
  void* mapped = nullptr;
  const cudaError_t result = cudaIpcOpenMemHandle(&mapped, offer.handle, cudaIpcMemLazyEnablePeerAccess);
  if (result == cudaSuccess) return static_cast<std::byte*>(mapped);
  cudaGetLastError();
  throw Error(
      ErrorCode::unsupported,
      fmt::format(
          "the device memory of rank {} cannot be mapped (cudaIpcOpenMemHandle: {}): containers need a "
          "common IPC and PID namespace, and devices must be able to reach each other",
          peer, cudaGetErrorString(result)));
}

}  // namespace

const PeerMemory::ProcessToken& PeerMemory::own_process() {
  static const ProcessToken token = [] {
    std::random_device random;
    ProcessToken drawn;
    for (std::byte& byte : drawn) byte = static_cast<std::byte>(random());
    return drawn;
  }();
  return token;
}

PeerMemory::PeerMemory(GroupMembers& members, std::size_t bytes)
    : bytes_((bytes + block_bytes - 1) / block_bytes * block_bytes) {
  try {
    share(members);
  } catch (const Error& error) {
    // No rank may free memory that a peer has mapped. After an agreed error all ranks come here and can meet.
    unmap();
    if (error.agreed()) members.context().communicator().barrier();
    throw;
  }
}

void PeerMemory::share(GroupMembers& members) {
  const Context& context = members.context();
  const auto ranks = static_cast<std::size_t>(members.size());
  Offer own{};
  context.on_all_ranks("device memory", [&] {
    own_ = allocate_on_device(bytes_, fmt::format("rank {}", context.rank()));
    own.process = own_process();
    own.memory = own_.get();
    check_cuda(cudaGetDevice(&own.device), "cudaGetDevice");
    // A failure matters only if peers are other processes, which then fail to map the memory.
    if (cudaIpcGetMemHandle(&own.handle, own_.get()) != cudaSuccess) cudaGetLastError();
  });
  std::vector<Offer> offers(ranks);
  members.communicator().all_gather(&own, offers.data(), sizeof own, DataType::u8);
  context.on_all_ranks("peers' device memory", [&] {
    for (std::size_t peer = 0; peer < ranks; ++peer) {
      const Offer& offer = offers[peer];
      if (offer.process == own.process) {
        reach(members.ranks()[peer], offer);
        all_.push_back(offer.memory);
        continue;
      }
      in_one_process_ = false;
      mapped_.push_back(map(members.ranks()[peer], offer));
      all_.push_back(mapped_.back());
    }
  });
}

void PeerMemory::unmap() noexcept {
  for (std::byte* memory : std::exchange(mapped_, {})) cudaIpcCloseMemHandle(memory);
}

PeerMemory::~PeerMemory() {
  if (own_) unmap();
}

}  // namespace ddl::device
