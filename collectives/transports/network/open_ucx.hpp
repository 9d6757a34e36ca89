#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "collectives/system/bootstrap.hpp"
#include "collectives/transports/network/ucx_network.hpp"

namespace ddl::collectives {

/// Opens UCX over the interfaces and adapters that all hosts share, connects the ranks, and lets each rank
/// send the next one a byte. Collective. If any rank fails, returns null on all ranks, with the same reason.
std::unique_ptr<UcxNetwork> open_ucx(Bootstrap& bootstrap, std::string& reason);

/// Each rank sends `greeting` to the next rank and receives the previous rank's in `answer`, within 15 s.
/// Collective. On failure, abandons the network and throws `transport`.
void greet_next(UcxNetwork& network, const Bootstrap& bootstrap, std::span<const std::byte> greeting,
                std::span<std::byte> answer);

}  // namespace ddl::collectives
