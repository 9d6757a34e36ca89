#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "collectives/communicator/communicator_impl.hpp"

namespace ddl {

/// Every rank's value, by rank, without a plan. Collective.
std::vector<std::int64_t> all_values(collectives::CommunicatorImpl& communicator, std::int64_t own);

/// Gives rank 0 every rank's text: `take` is called there with pieces of at most 1 MiB, rank by rank, in
/// order. Collective; no rank but 0 calls `take`.
void gather_texts(collectives::CommunicatorImpl& communicator, std::string_view text,
                  const std::function<void(int rank, std::string_view piece)>& take);

}  // namespace ddl
