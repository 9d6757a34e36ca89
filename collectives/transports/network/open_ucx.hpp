#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "collectives/system/bootstrap.hpp"
#include "collectives/transports/network/ucx_network.hpp"

namespace ddl::collectives {

/// UCX over the interfaces and adapters that all hosts have a part in, connected, after each rank has sent
/// the next one a byte. Collective. Null, and the reason, the same on all ranks, if some rank cannot.
std::unique_ptr<UcxNetwork> open_ucx(Bootstrap& bootstrap, std::string& reason);

/// Each rank sends the next one `greeting`, and has that of the one before it in `answer`. For 15 s at most;
/// throws `transport`, and abandons the network. Collective.
void greet_next(UcxNetwork& network, const Bootstrap& bootstrap, std::span<const std::byte> greeting,
                std::span<std::byte> answer);

}  // namespace ddl::collectives
