#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ddl {

/// Host name and boot id: the same for all processes of one machine; differs after a restart, and in
/// containers and namespaces with a host name of their own.
std::string host_identity();

/// The kernel's boot id: the same for all processes that share this machine's cores, also in containers.
std::string machine_identity();

/// The cores that this process may run on, as a mask of '0' and '1' up to the last usable core.
std::string usable_cores();

/// The number of cores that any of a machine's ranks may use. `masks`: `usable_cores` of each of its ranks.
std::size_t cores_in(const std::vector<std::string>& masks);
/// Whether a machine has fewer usable cores than ranks. `masks`: `usable_cores` of each of its ranks.
bool are_crowded(const std::vector<std::string>& masks);

}  // namespace ddl
