#pragma once

#include <string>

namespace ddl {

/// Host name and boot id: the same for the processes of one machine, another after a restart, and
/// another in a container or namespace with a name of its own.
std::string host_identity();

/// The kernel's boot id alone: the same for all processes that share this machine's cores.
std::string machine_identity();

/// Cores this process may run on.
int usable_cores();

}  // namespace ddl
