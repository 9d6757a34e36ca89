#pragma once

#include <cstddef>

#include "collectives/device/exchange.hpp"
#include "ddl/topology/schedule.hpp"

namespace ddl::collectives::device {

/// Sets `exchange.rank`'s part of a collective: sources, targets, offsets and elements. `count` is the
/// call's: see `ddl::Communicator`. Ranges are cut at multiples of 128 bytes, so that aligned data is read
/// and written in packs.
void set_range(Exchange& exchange, topology::Collective collective, std::size_t count,
               std::size_t element_bytes, int root);

/// The same for `exchange_all`, where every rank reduces everything for itself.
void set_whole(Exchange& exchange, std::size_t count);

}  // namespace ddl::collectives::device
