#pragma once

#include <cstddef>

#include "collectives/device/exchange.hpp"
#include "ddl/topology/schedule.hpp"

namespace ddl::collectives::device {

/// Fills in which part of a collective is `exchange.rank`'s: sources, targets, offsets and elements. `count`
/// is the call's: see `ddl::Communicator`. Ranges are cut at multiples of 128 bytes, so that they are read
/// and written in packs if the data can be.
void set_range(Exchange& exchange, topology::Collective collective, std::size_t count,
               std::size_t element_bytes, int root);

/// The same where every rank reduces everything for itself.
void set_whole(Exchange& exchange, std::size_t count);

}  // namespace ddl::collectives::device
