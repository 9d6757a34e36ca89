#include <unistd.h>

#include <algorithm>
#include <vector>

#include "collectives/system/bootstrap.hpp"
#include "collectives/system/interfaces.hpp"
#include "collectives/watch/socket_watch.hpp"
#include "ddl/error.hpp"
#include "topology/json_fields.hpp"

namespace ddl::collectives {

void describe(auto& fields, topology::MaybeConst<WatchInvitation> auto& invitation) {
  constexpr std::size_t most_addresses = 1024;
  fields("addresses", invitation.addresses, most_addresses);
  fields("port", invitation.port);
  fields("token", invitation.token);
  fields("host", invitation.host);
  fields("pid", invitation.pid);
}

namespace {

constexpr auto longest_meeting = std::chrono::seconds(15);

/// Identifies this machine and its network namespace; empty if the system does not tell.
std::string machine() {
  try {
    return local_interfaces().identity;
  } catch (const Error&) {
    return {};
  }
}

std::vector<std::string> own_addresses(bool one_machine) {
  if (one_machine) return {"127.0.0.1", "::1"};
  std::vector<std::string> addresses;
  for (const Interface& each : local_interfaces().interfaces) addresses.push_back(each.address);
  return addresses;
}

}  // namespace

OpenedWatch open_watch(Bootstrap& bootstrap, WatchSettings settings) {
  const std::vector<std::string> machines = bootstrap.all_gather(machine());
  const bool one_machine =
      !machines[0].empty() && std::ranges::count(machines, machines[0]) == bootstrap.size();
  OpenedWatch opened;
  std::string invitation;
  std::string problem;
  if (bootstrap.rank() == 0) {
    problem = problem_of([&] {
      WatchInvitation own{own_addresses(one_machine), 0, draw_token(), settings.host, getpid()};
      opened.hub = std::make_unique<WatchHub>(
          WatchHub::Settings{bootstrap.size(), one_machine, own.token, settings.warn, settings.on_report});
      own.port = opened.hub->port();
      invitation = topology::json_line(own);
    });
  }
  const std::string from_root = bootstrap.all_gather(invitation).front();
  if (problem.empty()) {
    problem = problem_of([&] {
      if (from_root.empty()) throw Error(ErrorCode::transport, "rank 0 accepts no connections");
      SocketWatchSettings own;
      own.invitation = topology::parsed_json<WatchInvitation>(from_root, "rank 0's invitation");
      own.hello = {own.invitation.token, bootstrap.rank(), getpid(), settings.host};
      own.until = Clock::now() + longest_meeting;
      if (settings.on_lonely_report) own.on_report = settings.on_lonely_report;
      opened.watch = watch_by_socket(own);
    });
  }
  opened.reason = first_problem(bootstrap.all_gather(problem));
  if (!opened.reason.empty()) {
    if (opened.watch) opened.watch->leave();
    opened.watch.reset();
    opened.hub.reset();
  }
  if (opened.hub) opened.hub->begin();
  return opened;
}

}  // namespace ddl::collectives
