#include "collectives/system/interfaces.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <ranges>
#include <set>
#include <span>
#include <utility>

#include "topology/json_fields.hpp"
#include "topology/refuse.hpp"

namespace ddl::collectives {
namespace {

using AddressBytes = std::vector<std::uint8_t>;

/// Empty if `address` is not an IP address.
AddressBytes bytes_of(const std::string& address) {
  std::array<std::uint8_t, 16> bytes{};
  if (inet_pton(AF_INET, address.c_str(), bytes.data()) == 1) return {bytes.begin(), bytes.begin() + 4};
  if (inet_pton(AF_INET6, address.c_str(), bytes.data()) == 1) return {bytes.begin(), bytes.end()};
  return {};
}

std::string subnet_of(const Interface& interface) {
  AddressBytes bytes = bytes_of(interface.address);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const int bits = std::clamp(interface.prefix_bits - static_cast<int>(8 * i), 0, 8);
    bytes[i] = static_cast<std::uint8_t>(bytes[i] & (0xff00 >> bits));
  }
  return fmt::format("{:02x}/{}", fmt::join(bytes, ""), interface.prefix_bits);
}

/// The bytes of an IPv4 or IPv6 address or mask.
std::span<const std::uint8_t> bytes_in(const sockaddr* address, int family) {
  if (address == nullptr) return {};
  if (family == AF_INET6) return reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr.s6_addr;
  const in_addr& v4 = reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  return {reinterpret_cast<const std::uint8_t*>(&v4), sizeof v4};
}

/// None if the address is link-local.
std::optional<Interface> described(const ifaddrs& entry, int family) {
  const auto address = bytes_in(entry.ifa_addr, family);
  if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(address.data())) return std::nullopt;
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(family, address.data(), text.data(), text.size());
  int prefix_bits = 0;
  for (const std::uint8_t byte : bytes_in(entry.ifa_netmask, family)) prefix_bits += std::popcount(byte);
  return Interface{entry.ifa_name, text.data(), prefix_bits, (entry.ifa_flags & IFF_LOOPBACK) != 0};
}

std::string machine_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat net_namespace {};
  stat("/proc/self/ns/net", &net_namespace);
  return fmt::format("{}-{}", boot, net_namespace.st_ino);
}

}  // namespace

void describe(auto& fields, topology::MaybeConst<Interface> auto& interface) {
  constexpr int most_prefix_bits = 128;
  fields("name", interface.name, topology::NotEmpty());
  fields.text(
      "address", interface.address, std::identity(),
      [](std::string_view text) {
        return bytes_of(std::string(text)).empty() ? std::nullopt : std::optional<std::string>(text);
      },
      "an IPv4 or IPv6 address");
  fields("prefix_bits", interface.prefix_bits, 0, most_prefix_bits);
  fields("loopback", interface.loopback);
}

void describe(auto& fields, topology::MaybeConst<MachineInterfaces> auto& machine) {
  constexpr std::size_t most_interfaces = 4096;
  fields("identity", machine.identity, topology::NotEmpty());
  fields("interfaces", machine.interfaces, most_interfaces);
}

MachineInterfaces local_interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    fail_with(ErrorCode::transport, "the network interfaces cannot be listed (getifaddrs: {})",
              std::strerror(errno));
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  MachineInterfaces result{machine_identity(), {}};
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) continue;
      if ((entry->ifa_flags & IFF_UP) == 0 || (entry->ifa_flags & IFF_RUNNING) == 0) continue;
      if (std::ranges::find(result.interfaces, entry->ifa_name, &Interface::name) !=
          result.interfaces.end()) {
        continue;
      }
      if (auto interface = described(*entry, family)) result.interfaces.push_back(std::move(*interface));
    }
  }
  return result;
}

std::string to_text(const MachineInterfaces& machine) { return topology::json_line(machine); }

MachineInterfaces parse_interfaces(std::string_view text) {
  constexpr std::string_view source = "a rank's network interfaces (do all ranks run the same version?)";
  auto machine = topology::parsed_json<MachineInterfaces>(text, source);
  for (const auto& [name, address, prefix_bits, loopback] : machine.interfaces) {
    const std::size_t most_bits = 8 * bytes_of(address).size();
    if (static_cast<std::size_t>(prefix_bits) <= most_bits) continue;
    fail_with(ErrorCode::corrupt_data,
              "{}: found a prefix of {} bits for the address {}, expected at most {}", source, prefix_bits,
              address, most_bits);
  }
  return machine;
}

std::vector<std::string> usable_interfaces(const std::vector<MachineInterfaces>& machines, std::size_t own) {
  std::map<std::string, const MachineInterfaces*> distinct;
  for (const MachineInterfaces& machine : machines) distinct.emplace(machine.identity, &machine);
  const MachineInterfaces& here = machines[own];

  std::vector<std::string> names;
  if (distinct.size() == 1) {
    for (const Interface& interface : here.interfaces) {
      if (interface.loopback) return {interface.name};
    }
    for (const Interface& interface : here.interfaces) names.push_back(interface.name);
    return names;
  }

  std::map<std::string, int> holders;  // per address
  for (const auto& [identity, machine] : distinct) {
    for (const Interface& interface : machine->interfaces) ++holders[interface.address];
  }
  const auto eligible = [&](const Interface& interface) {
    return !interface.loopback && holders[interface.address] == 1;
  };
  std::map<std::string, std::size_t> machines_in;  // per subnet
  for (const auto& [identity, machine] : distinct) {
    std::set<std::string> subnets;
    for (const Interface& interface : machine->interfaces) {
      if (eligible(interface)) subnets.insert(subnet_of(interface));
    }
    for (const std::string& subnet : subnets) ++machines_in[subnet];
  }
  const bool any_common = std::ranges::count(machines_in | std::views::values, distinct.size()) > 0;
  for (const Interface& interface : here.interfaces) {
    if (!eligible(interface)) continue;
    if (any_common && machines_in[subnet_of(interface)] != distinct.size()) continue;
    names.push_back(interface.name);
  }
  return names;
}

std::vector<std::string> active_rdma_ports() {
  namespace fs = std::filesystem;
  std::vector<std::string> ports;
  std::error_code ignored;
  for (fs::directory_iterator device("/sys/class/infiniband", ignored), end; device != end;
       device.increment(ignored)) {
    for (fs::directory_iterator port(device->path() / "ports", ignored); port != end;
         port.increment(ignored)) {
      std::string state;
      std::ifstream stream(port->path() / "state");
      if (std::getline(stream, state) && state.find("ACTIVE") != std::string::npos) {
        ports.push_back(
            fmt::format("{}:{}", device->path().filename().string(), port->path().filename().string()));
      }
    }
  }
  std::sort(ports.begin(), ports.end());
  return ports;
}

}  // namespace ddl::collectives
