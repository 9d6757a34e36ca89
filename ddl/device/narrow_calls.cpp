#include "ddl/device/narrow_calls.hpp"

#include <algorithm>

#include "collectives/device/kernels.hpp"

namespace ddl::device {

void run_narrow(const DeviceCall& call, DataType wire, int members, int member, std::span<std::byte> memory,
                const PassOn& pass_on) {
  using collectives::device::launch_wire;
  constexpr std::size_t in_line = 64;  // elements
  const std::size_t pieces = pieces_of(call.collective, members);
  const std::size_t room = memory.size() / size_of(wire) / pieces;
  const std::size_t most = std::max<std::size_t>(room / in_line * in_line, 1);
  // The stream orders the parts, so all of them can use the same memory.
  for (std::size_t first = 0; first < call.count; first += most) {
    const std::size_t length = std::min(most, call.count - first);
    const auto* const input = reinterpret_cast<const float*>(call.input) + first;
    collectives::device::WirePass pass{.values = const_cast<float*>(input),  // only read when narrowing
                                       .residual = call.residual == nullptr ? nullptr : call.residual + first,
                                       .packed = memory.data(),
                                       .pieces = pieces,
                                       .length = length,
                                       .stride = call.count};
    launch_wire(pass, wire, true, call.stream);
    std::byte* const sums =
        memory.data() + (pieces > 1 ? static_cast<std::size_t>(member) * length * size_of(wire) : 0);
    DeviceCall narrow = call.part(call.collective, memory.data(), sums, length);
    narrow.type = wire;
    pass_on(narrow);
    pass = {.values = reinterpret_cast<float*>(call.output) + first,
            .packed = sums,
            .length = length,
            .stride = length};
    launch_wire(pass, wire, false, call.stream);
  }
}

}  // namespace ddl::device
