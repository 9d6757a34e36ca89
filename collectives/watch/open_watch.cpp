#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "collectives/system/interfaces.hpp"
#include "collectives/watch/socket_watch.hpp"
#include "ddl/error.hpp"
#include "topology/json_text.hpp"

namespace ddl::collectives {
namespace {

constexpr auto longest_meeting = std::chrono::seconds(15);

WatchToken draw_token() {
  WatchToken token{};
  if (getrandom(token.data(), sizeof token, 0) != static_cast<ssize_t>(sizeof token)) {
    throw Error(ErrorCode::transport, fmt::format("getrandom failed: {}", std::strerror(errno)));
  }
  return token;
}

/// Where rank 0 is, and the token.
struct Invitation {
  std::vector<std::string> addresses;
  std::uint16_t port = 0;
  WatchToken token{};
  std::string host;
  std::int64_t pid = 0;
};

std::string to_text(const Invitation& invitation) {
  return nlohmann::json{{"addresses", invitation.addresses},
                        {"port", invitation.port},
                        {"token", invitation.token},
                        {"host", invitation.host},
                        {"pid", invitation.pid}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Invitation parse_invitation(const std::string& text) {
  try {
    const nlohmann::json object = nlohmann::json::parse(text);
    Invitation invitation;
    object.at("addresses").get_to(invitation.addresses);
    object.at("port").get_to(invitation.port);
    object.at("token").get_to(invitation.token);
    object.at("host").get_to(invitation.host);
    object.at("pid").get_to(invitation.pid);
    return invitation;
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCode::corrupt_data,
                fmt::format("rank 0's invitation: {}", topology::json_problem(error)));
  }
}

/// What tells it, and its network, from others; empty if the system does not say.
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

template <typename Step>
std::string problem_of(Step step) {
  try {
    step();
    return {};
  } catch (const std::exception& error) {
    return error.what();
  }
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
      Invitation own{own_addresses(one_machine), 0, draw_token(), settings.host, getpid()};
      opened.hub = std::make_unique<WatchHub>(
          WatchHub::Settings{bootstrap.size(), one_machine, own.token, settings.warn, settings.on_report});
      own.port = opened.hub->port();
      invitation = to_text(own);
    });
  }
  const std::string from_root = bootstrap.all_gather(invitation).front();
  if (problem.empty()) {
    problem = problem_of([&] {
      if (from_root.empty()) throw Error(ErrorCode::transport, "rank 0 cannot be connected with");
      const Invitation invited = parse_invitation(from_root);
      SocketWatch::Settings own;
      own.hello = {invited.token, bootstrap.rank(), getpid(), settings.host};
      own.addresses = invited.addresses;
      own.port = invited.port;
      own.root_host = invited.host;
      own.root_pid = invited.pid;
      own.until = std::chrono::steady_clock::now() + longest_meeting;
      if (settings.on_lonely_report) own.on_report = settings.on_lonely_report;
      opened.watch = std::make_shared<SocketWatch>(own);
    });
  }
  const std::vector<std::string> problems = bootstrap.all_gather(problem);
  for (std::size_t rank = 0; rank < problems.size(); ++rank) {
    if (problems[rank].empty()) continue;
    opened.reason = fmt::format("rank {}: {}", rank, problems[rank]);
    if (opened.watch) opened.watch->leave();
    opened.watch.reset();
    opened.hub.reset();
    break;
  }
  if (opened.hub) opened.hub->begin();
  return opened;
}

}  // namespace ddl::collectives
