#include "collectives/network/open_network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "ddl/error.hpp"

#ifdef DDL_HAVE_UCX
#include <poll.h>

#include "collectives/network/interfaces.hpp"
#include "collectives/network/ucx_network.hpp"
#endif

namespace ddl::collectives {
namespace {

/// Every rank's problem, or none: the first that there is, the same text on all ranks.
std::string first_problem(Bootstrap& bootstrap, const std::string& own) {
  const std::vector<std::string> all = bootstrap.all_gather(own);
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (!all[r].empty()) return fmt::format("rank {}: {}", r, all[r]);
  }
  return {};
}

/// Runs `step`; its error becomes text.
template <typename Step>
std::string problem_of(Step step) {
  try {
    step();
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

void agree_on(NetworkChoice choice, Bootstrap& bootstrap) {
  const std::vector<std::string> all = bootstrap.all_gather(to_string(choice));
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    throw Error(
        ErrorCode::mismatch,
        fmt::format("DDL_NETWORK is '{}' on rank 0 and '{}' on rank {}: set it to the same everywhere "
                    "(mpirun -x DDL_NETWORK)",
                    all[0], all[r], r));
  }
}

#ifdef DDL_HAVE_UCX

constexpr auto longest_greeting = std::chrono::seconds(15);

/// Each rank sends the next one a byte.
void greet_next(UcxNetwork& network, int rank, int ranks) {
  const int next = (rank + 1) % ranks;
  const int previous = (rank + ranks - 1) % ranks;
  const std::byte greeting{1};
  std::byte answer{};
  Transfer sent;
  Transfer received;
  const auto until = Clock::now() + longest_greeting;
  network.receive(previous, {}, {&answer, 1}, received);
  network.send(next, {}, {&greeting, 1}, sent);
  while (!(sent.over() && received.over()) && Clock::now() < until) {
    if (network.progress() || !network.arm()) continue;
    constexpr int milliseconds = 100;
    pollfd readable{network.event_descriptor(), POLLIN, 0};
    poll(&readable, 1, milliseconds);
  }
  if (sent.state == Transfer::State::done && received.state == Transfer::State::done) return;
  std::string why = network.failure();
  network.abandon();  // the bytes live no longer than this call
  if (why.empty()) {
    why = fmt::format("{} rank {} within 15 s; is there a firewall?",
                      received.over() ? "nothing reaches" : "nothing comes from",
                      received.over() ? next : previous);
  }
  throw Error(ErrorCode::transport, fmt::format("{}: {}", network.name(), why));
}

/// Null, and the reason, if some rank cannot.
std::unique_ptr<Network> open_ucx(Bootstrap& bootstrap, std::string& reason) {
  const auto own = static_cast<std::size_t>(bootstrap.rank());
  std::string described;
  std::string problem = problem_of([&] { described = to_text(local_interfaces()); });
  const std::vector<std::string> descriptions = bootstrap.all_gather(described);
  // A rank that has none says why.
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
      network = std::make_unique<UcxNetwork>(settings);
    });
  }
  reason = first_problem(bootstrap, problem);
  if (!reason.empty()) return nullptr;

  network->connect(bootstrap.all_gather(network->address()));
  reason =
      first_problem(bootstrap, problem_of([&] { greet_next(*network, bootstrap.rank(), bootstrap.size()); }));
  if (!reason.empty()) {
    network->abandon();
    return nullptr;
  }
  return network;
}

#else

std::unique_ptr<Network> open_ucx(Bootstrap&, std::string& reason) {
  reason = "this build is without UCX (CMake option DDL_WITH_UCX)";
  return nullptr;
}

#endif

}  // namespace

const char* to_string(NetworkChoice choice) noexcept {
  switch (choice) {
    case NetworkChoice::automatic:
      return "auto";
    case NetworkChoice::ucx:
      return "ucx";
    case NetworkChoice::mpi:
      return "mpi";
  }
  return "";
}

OpenedNetwork open_network(Bootstrap& bootstrap, NetworkChoice choice,
                           const std::function<std::unique_ptr<Network>()>& make_mpi) {
  agree_on(choice, bootstrap);
  OpenedNetwork opened;
  if (choice != NetworkChoice::mpi) {
    opened.network = open_ucx(bootstrap, opened.reason);
    if (opened.network != nullptr) return opened;
    if (choice == NetworkChoice::ucx) {
      throw Error(
          ErrorCode::transport,
          fmt::format("DDL_NETWORK=ucx is not possible: {}. UCX_NET_DEVICES chooses network interfaces, "
                      "UCX_LOG_LEVEL=info says more; DDL_NETWORK=mpi does without UCX",
                      opened.reason));
    }
  }
  if (!make_mpi) {
    throw Error(
        ErrorCode::transport,
        choice == NetworkChoice::mpi
            ? std::string("DDL_NETWORK=mpi is not possible: this job was not started by MPI")
            : fmt::format("there is no network between the hosts: UCX cannot be used ({}), and there is no "
                          "MPI to use instead",
                          opened.reason));
  }
  opened.network = make_mpi();
  return opened;
}

}  // namespace ddl::collectives
