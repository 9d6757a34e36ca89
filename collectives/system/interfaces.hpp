#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddl::collectives {

/// A network interface that is up and has an address.
struct Interface {
  std::string name;     ///< "eth0"
  std::string address;  ///< Without the prefix length: "10.0.0.1" or "2001:db8::1".
  int prefix_bits = 0;  ///< Length of the subnet's prefix.
  bool loopback = false;

  friend bool operator==(const Interface&, const Interface&) = default;
};

/// The interfaces that the ranks of one machine see. Ranks with equal identities share a kernel and a network
/// namespace, so that an address means the same to all of them.
struct MachineInterfaces {
  std::string identity;
  std::vector<Interface> interfaces;
};

/// The interfaces of this machine. An interface is listed with its first IPv4 address, or else with its first
/// IPv6 address that is not link-local. Throws `transport` if the system call fails.
MachineInterfaces local_interfaces();

/// Converts to and from JSON. `parse_interfaces` throws `corrupt_data` for malformed text.
std::string to_text(const MachineInterfaces& machine);
MachineInterfaces parse_interfaces(std::string_view text);

/// The names of machine `own`'s interfaces that the job's traffic may use. `machines` lists the machines of
/// all ranks, with repetitions. On a single machine: its loopback interface. Otherwise, as in Open MPI, the
/// interfaces in subnets that all machines share, or all interfaces if there is no such subnet. Interfaces
/// whose address another machine also has are excluded: those are bridges for containers (docker0) or virtual
/// machines. May be empty.
std::vector<std::string> usable_interfaces(const std::vector<MachineInterfaces>& machines, std::size_t own);

/// Active ports of this machine's InfiniBand and RoCE adapters, as "mlx5_0:1".
std::vector<std::string> active_rdma_ports();

}  // namespace ddl::collectives
