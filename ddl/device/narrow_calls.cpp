#include "ddl/device/narrow_calls.hpp"

#include <algorithm>

#include "collectives/device/kernels.hpp"
#include "ddl/cuda_check.hpp"

namespace ddl::device {

void NarrowCalls::run(const DeviceCall& call, DataType wire, int members, int member,
                      const PassOn& pass_on) const {
  using collectives::device::launch_wire;
  constexpr std::size_t in_line = 64;  // elements
  const std::size_t pieces = pieces_of(call.collective, members);
  const std::size_t room = memory_.size() / size_of(wire) / pieces;
  const std::size_t most = std::max<std::size_t>(room / in_line * in_line, 1);
  // Kernels of one stream follow one another, so that all parts may have the same memory.
  for (std::size_t first = 0; first < call.count; first += most) {
    const std::size_t length = std::min(most, call.count - first);
    const auto* const input = reinterpret_cast<const float*>(call.input) + first;
    collectives::device::WirePass pass{.values = const_cast<float*>(input),  // is only read
                                       .residual = call.residual == nullptr ? nullptr : call.residual + first,
                                       .packed = memory_.data(),
                                       .pieces = pieces,
                                       .length = length,
                                       .stride = call.count};
    check_cuda(launch_wire(pass, wire, true, call.stream), "launch of a rounding");
    DeviceCall narrow = call;
    narrow.type = wire;
    narrow.wire.reset();
    narrow.residual = nullptr;
    narrow.count = length;
    narrow.input = memory_.data();
    narrow.output = memory_.data();
    if (pieces > 1) narrow.output += static_cast<std::size_t>(member) * length * size_of(wire);
    pass_on(narrow);
    pass = {.values = reinterpret_cast<float*>(call.output) + first,
            .packed = narrow.output,
            .length = length,
            .stride = length};
    check_cuda(launch_wire(pass, wire, false, call.stream), "launch of a widening");
  }
}

}  // namespace ddl::device
