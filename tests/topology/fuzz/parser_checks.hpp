#pragma once

#include <string_view>

namespace ddl::topology {

/// Passes arbitrary bytes to a reader of topologies. The reader must refuse them with `corrupt_data` that
/// names the source, or return a topology that survives a round trip through JSON and has routes between its
/// devices. Otherwise throws std::logic_error or the reader's exception. Returns whether the bytes were
/// accepted.
bool check_topology_from_json(std::string_view bytes);
bool check_topology_from_nccl_xml(std::string_view bytes);

}  // namespace ddl::topology
