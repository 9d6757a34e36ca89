#pragma once

#include <string>
#include <vector>

namespace ddl {

/// Host name and boot id: the same for the processes of one machine, another after a restart, and
/// another in a container or namespace with a name of its own.
std::string host_identity();

/// The kernel's boot id alone: the same for all processes that share this machine's cores.
std::string machine_identity();

/// Cores this process may run on, as a mask: a '1' at the place of each, up to the last.
std::string usable_cores();

/// Whether ranks of one machine that may use these cores are more than there are cores for them all.
bool are_crowded(const std::vector<std::string>& masks);

}  // namespace ddl
