#include "ddl/device/ucx/open_device_network.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/device/cuda_check.hpp"
#include "collectives/transports/network/ucx_network.hpp"
#include "ddl/device/runtime/cuda_handles.hpp"
#include "ddl/device/runtime/dimension_group.hpp"

namespace ddl::device {
namespace {

/// Sends device memory to the next rank and checks what arrives, because UCX may claim support that the
/// driver or a network adapter lacks.
void greet_on_devices(const Context& context, collectives::UcxNetwork& network) {
  constexpr std::size_t bytes = std::size_t{512} << 10;  // large enough for UCX's rendezvous protocol
  const int ranks = context.size();
  const auto mark = [](int rank) { return static_cast<std::uint8_t>(rank % 251 + 1); };
  const std::vector<std::uint8_t> sent(bytes, mark(context.rank()));
  const std::vector<std::uint8_t> expected(bytes, mark((context.rank() + ranks - 1) % ranks));
  std::vector<std::uint8_t> found(bytes);
  const DeviceBytes memory = allocate_on_device(2 * bytes, "UCX");
  std::byte* const answer = memory.get() + bytes;
  check_cuda(cudaMemcpy(memory.get(), sent.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  try {
    greet_next(network, ContextBootstrap(context), {memory.get(), bytes}, {answer, bytes});
  } catch (const Error& error) {
    throw Error(ErrorCode::unsupported, fmt::format("between devices' memory, {}", error.what()));
  }
  check_cuda(cudaMemcpy(found.data(), answer, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
  if (found == expected) return;
  throw Error(
      ErrorCode::unsupported,
      fmt::format("{} delivered other data than the memory of another rank's device held", network.name()));
}

}  // namespace

std::unique_ptr<collectives::UcxNetwork> open_device_network(const Context& context) {
  ContextBootstrap gathering(context);
  std::string reason;
  auto network = collectives::open_ucx(gathering, reason);
  if (!network) throw Error(ErrorCode::unsupported, "UCX cannot be used: " + reason).as_agreed();
  context.on_all_ranks("UCX on devices", [&] {
    if (carries_device_memory(*network)) return;
    throw Error(
        ErrorCode::unsupported,
        "UCX does not know the memory of devices: it was built without CUDA, or does not find its part "
        "for CUDA (package ucx-cuda), or UCX_TLS leaves it out");
  });
  context.on_all_ranks("UCX on devices", [&] { greet_on_devices(context, *network); });
  return network;
}

}  // namespace ddl::device
