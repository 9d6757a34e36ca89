#pragma once

#include <string_view>

namespace ddl::topology {

/// Hands any bytes to a reader of topologies. The reader must refuse them with `corrupt_data` naming its
/// source, or give a topology that comes back equal from JSON and has routes between its devices; anything
/// else throws std::logic_error, or what the reader threw. Returns whether the bytes were accepted.
bool check_topology_from_json(std::string_view bytes);
bool check_topology_from_nccl_xml(std::string_view bytes);

}  // namespace ddl::topology
