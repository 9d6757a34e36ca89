#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddl::collectives {

/// A network interface that is up and has an address.
struct Interface {
  std::string name;     ///< "eth0"
  std::string address;  ///< Without its prefix, "10.0.0.1" or "2001:db8::1".
  int prefix_bits = 0;  ///< How much of the address all of its subnet share.
  bool loopback = false;

  friend bool operator==(const Interface&, const Interface&) = default;
};

/// The interfaces that the ranks of one machine see. Ranks with equal identities share a kernel and a network
/// namespace, so that an address means the same to them.
struct MachineInterfaces {
  std::string identity;
  std::vector<Interface> interfaces;
};

/// This machine's. An interface counts with its first IPv4 address, else its first IPv6 address that is valid
/// beyond the link. Throws `transport` if the system refuses to tell.
MachineInterfaces local_interfaces();

/// Lines of text, and back. `parse_interfaces` throws `corrupt_data` for what cannot be.
std::string to_text(const MachineInterfaces& machine);
MachineInterfaces parse_interfaces(std::string_view text);

/// Which of machine `own`'s interfaces the job's traffic may use, the machines being all of the job's (some
/// may be listed several times). All on one machine: its loopback. Otherwise, as Open MPI does, those in
/// subnets that all machines have a part in; if there is no such subnet, all. Never an address that another
/// machine has too: that is a bridge for containers (docker0) or virtual machines. Empty if nothing is left.
std::vector<std::string> usable_interfaces(const std::vector<MachineInterfaces>& machines, std::size_t own);

/// "mlx5_0:1": ports of InfiniBand and RoCE adapters of this machine that are up.
std::vector<std::string> active_rdma_ports();

}  // namespace ddl::collectives
