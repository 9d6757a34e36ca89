#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "collectives/system/bootstrap.hpp"
#include "collectives/system/descriptors.hpp"
#include "collectives/system/interfaces.hpp"
#include "collectives/transports/network/ucx_network.hpp"
#include "ddl/topology/as_index.hpp"
#include "topology/refuse.hpp"

namespace ddl::collectives {
namespace {

constexpr auto longest_greeting = std::chrono::seconds(15);

}  // namespace

void greet_next(UcxNetwork& network, const Bootstrap& bootstrap, std::span<const std::byte> greeting,
                std::span<std::byte> answer) {
  const int rank = bootstrap.rank();
  const int ranks = bootstrap.size();
  const int next = (rank + 1) % ranks;
  const int previous = (rank + ranks - 1) % ranks;
  Transfer sent;
  Transfer received;
  const auto until = Clock::now() + longest_greeting;
  network.receive(previous, {}, answer, received);
  network.send(next, {}, greeting, sent);
  while (!(sent.over() && received.over()) && Clock::now() < until) {
    if (network.progress() || !network.arm()) continue;
    pollfd readable{network.event_descriptor(), POLLIN, 0};
    poll_until({&readable, 1}, std::min(until, Clock::now() + std::chrono::milliseconds(100)));
  }
  if (sent.state == Transfer::State::done && received.state == Transfer::State::done) return;
  std::string why = network.failure();
  network.abandon();  // the buffers live no longer than this call
  if (why.empty()) {
    why = fmt::format("{} rank {} within 15 s; is there a firewall?",
                      received.over() ? "nothing reaches" : "nothing arrives from",
                      received.over() ? next : previous);
  }
  fail_with(ErrorCode::transport, "{}: {}", network.name(), why);
}

std::unique_ptr<UcxNetwork> open_ucx(Bootstrap& bootstrap, std::string& reason) {
  const auto own = as_index(bootstrap.rank());
  std::string described;
  std::string problem = problem_of([&] { described = to_text(local_interfaces()); });
  const std::vector<std::string> descriptions = bootstrap.all_gather(described);
  // A rank without a description reports why.
  const bool are_known = std::ranges::none_of(descriptions, &std::string::empty);

  std::unique_ptr<UcxNetwork> network;
  if (are_known) {
    problem = problem_of([&] {
      std::vector<MachineInterfaces> machines;
      for (const std::string& description : descriptions) machines.push_back(parse_interfaces(description));
      UcxSettings settings;
      settings.rank = bootstrap.rank();
      settings.ranks = bootstrap.size();
      settings.ranks_per_host = static_cast<int>(std::count_if(
          machines.begin(), machines.end(),
          [&](const MachineInterfaces& machine) { return machine.identity == machines[own].identity; }));
      settings.devices = usable_interfaces(machines, own);
      const std::vector<std::string> rdma = active_rdma_ports();
      settings.devices.insert(settings.devices.begin(), rdma.begin(), rdma.end());
      network = make_ucx_network(settings);
    });
  }
  reason = first_problem(bootstrap.all_gather(problem));
  if (!reason.empty()) return nullptr;

  network->connect(bootstrap.all_gather(network->address()));
  problem = problem_of([&] {
    const std::byte greeting{1};
    std::byte answer{};
    greet_next(*network, bootstrap, {&greeting, 1}, {&answer, 1});
  });
  reason = first_problem(bootstrap.all_gather(problem));
  if (!reason.empty()) {
    network->abandon();
    return nullptr;
  }
  return network;
}

}  // namespace ddl::collectives
