#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "collectives/system/interfaces.hpp"
#include "support/thrown_error.hpp"

namespace ddl::collectives {
namespace {

using Names = std::vector<std::string>;

const Interface loopback{"lo", "127.0.0.1", 8, true};
const Interface docker{"docker0", "172.17.0.1", 16, false};

Interface lan(int host) { return {"eth0", "10.0.0." + std::to_string(host), 24, false}; }
MachineInterfaces machine(const std::string& identity, std::vector<Interface> interfaces) {
  return {identity, std::move(interfaces)};
}

// A rank would send to its own host's container bridge, or use a network that the peer is not on.
TEST(UsableInterfaces, AreThoseWhoseSubnetAllMachinesShare) {
  const Interface storage{"eth1", "192.168.5.1", 24, false};
  const std::vector<MachineInterfaces> machines{machine("a", {loopback, lan(1), storage, docker}),
                                                machine("b", {loopback, docker, lan(2)}),
                                                machine("c", {loopback, lan(3)})};
  for (std::size_t own = 0; own < machines.size(); ++own) {
    EXPECT_EQ(usable_interfaces(machines, own), Names{"eth0"}) << own;
  }
}

// Half of a host's bandwidth would be unused.
TEST(UsableInterfaces, AreAllThatAreShared) {
  const std::vector<MachineInterfaces> machines{
      machine("a", {loopback, lan(1), {"ib0", "10.1.0.1", 16, false}}),
      machine("b", {loopback, {"ib0", "10.1.0.2", 16, false}, lan(2)})};
  EXPECT_EQ(usable_interfaces(machines, 0), (Names{"eth0", "ib0"}));
  EXPECT_EQ(usable_interfaces(machines, 1), (Names{"ib0", "eth0"}));
}

// Machines behind routers could not communicate.
TEST(UsableInterfaces, AreAllWithAnAddressOfTheirOwnIfNoSubnetIsShared) {
  const std::vector<MachineInterfaces> machines{
      machine("a", {loopback, docker, {"eth0", "10.0.1.1", 24, false}}),
      machine("b", {loopback, docker, {"eth0", "10.0.2.1", 24, false}})};
  EXPECT_EQ(usable_interfaces(machines, 0), Names{"eth0"});
}

// A changed network or a firewall would break a job that needs no network.
TEST(UsableInterfaces, OfOneMachineAreItsLoopback) {
  const MachineInterfaces one = machine("a", {lan(1), loopback, docker});
  EXPECT_EQ(usable_interfaces({one, one}, 1), Names{"lo"});
  const MachineInterfaces without = machine("a", {lan(1), docker});
  EXPECT_EQ(usable_interfaces({without, without}, 0), (Names{"eth0", "docker0"}));
}

TEST(UsableInterfaces, OfSeveralRanksOfAMachineAreTheSame) {
  const MachineInterfaces a = machine("a", {loopback, lan(1)});
  const MachineInterfaces b = machine("b", {loopback, lan(2)});
  EXPECT_EQ(usable_interfaces({a, a, b, b}, 1), Names{"eth0"});
}

TEST(UsableInterfaces, OfMachinesWithIPv6Alone) {
  const std::vector<MachineInterfaces> machines{machine("a", {loopback, {"eth0", "2001:db8::1", 64, false}}),
                                                machine("b", {loopback, {"eth0", "2001:db8::2", 64, false}})};
  EXPECT_EQ(usable_interfaces(machines, 0), Names{"eth0"});
}

TEST(UsableInterfaces, MayBeNone) {
  EXPECT_TRUE(usable_interfaces({machine("a", {loopback}), machine("b", {loopback, lan(1)})}, 0).empty());
}

TEST(Interfaces, OfThisMachineSurviveBeingSent) {
  const MachineInterfaces here = local_interfaces();
  EXPECT_FALSE(here.identity.empty());
  const MachineInterfaces again = parse_interfaces(to_text(here));
  EXPECT_EQ(again.identity, here.identity);
  EXPECT_EQ(again.interfaces, here.interfaces);
}

TEST(Interfaces, RefuseWhatIsNoDescription) {
  const std::string good =
      R"({"identity":"a","interfaces":[{"name":"eth0","address":"10.0.0.1","prefix_bits":24,"loopback":false}]})";
  EXPECT_EQ(parse_interfaces(good).interfaces.front().name, "eth0");
  const std::vector<std::pair<std::string, std::string>> changes = {
      {good, ""},   {"\"a\"", "\"\""}, {"eth0", ""}, {"10.0.0.1", "10.0.0"},     {"24", "33"},
      {"24", "-1"}, {"false", "2"},    {"]}", ""},   {",\"loopback\":false", ""}};
  for (const auto& [from, to] : changes) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    EXPECT_NE(test::message_of(ErrorCode::corrupt_data, [&] { parse_interfaces(text); }).find("same version"),
              std::string::npos)
        << text;
  }
}

}  // namespace
}  // namespace ddl::collectives
