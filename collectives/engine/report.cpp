// Messages for people.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "collectives/engine/driver.hpp"
#include "collectives/engine/each_awaited.hpp"
#include "ddl/error.hpp"

namespace ddl::collectives {
namespace {

constexpr std::size_t most_peers_named = 8;

}  // namespace

std::string Driver::rank_and_host(int rank) const {
  return fmt::format("rank {} (host {})", rank, settings_.map.short_name(settings_.map.host_of(rank)));
}

std::string Driver::describe(const Call& call) const {
  return fmt::format("{} on {}", record_of(call).describe(), rank_and_host(settings_.rank));
}

std::string Driver::describe_plan(const Call& call) const {
  const PlanNames* names = call.program->names();
  return names == nullptr || names->plan.empty() ? "" : fmt::format("; plan: {}", names->plan);
}

std::string Driver::describe_awaited(const OperationState& operation) const {
  struct Awaited {
    int rank;
    std::string text;
    std::size_t more = 0;
  };
  std::vector<Awaited> all;
  const PlanNames* names = operation.program().names();
  each_awaited(operation, [&](int rank, const Task& task, const char* what) {
    const auto known = std::ranges::find(all, rank, &Awaited::rank);
    if (known != all.end()) {
      ++known->more;
      return;
    }
    std::string text = fmt::format("{} ({} {} bytes", rank_and_host(rank), what, operation.bytes_of(task));
    if (names != nullptr && task.phase < names->phases.size()) {
      text += fmt::format(" in {}, chunk {}", names->phases[task.phase], task.chunk);
    }
    all.push_back({rank, std::move(text)});
  });
  std::string text;
  for (std::size_t i = 0; i < std::min(all.size(), most_peers_named); ++i) {
    if (i != 0) text += ", ";
    text += all[i].text;
    if (all[i].more != 0) text += fmt::format("; {} messages more", all[i].more);
    text += ')';
  }
  if (all.size() > most_peers_named) text += fmt::format(" and {} more", all.size() - most_peers_named);
  return text.empty() ? "the network" : text;
}

std::string Driver::describe_awaited() const {
  return operations_.empty() ? "" : describe_awaited(*operations_.front());
}

void Driver::throw_about(const Call& call, ErrorCode code, const std::string& text) {
  about_ = {call.communicator, call.sequence};
  throw Error(code, text);
}

void Driver::throw_timeout(const OperationState& operation) {
  const std::chrono::duration<double> waited = Clock::now() - operation.started;
  throw_about(operation.call, ErrorCode::timeout,
              fmt::format("{}: the deadline passed after {:.3g} s while waiting for {}. Either that rank is "
                          "stuck or slow (a longer deadline: DDL_DEADLINE, in seconds), or the ranks called "
                          "different collectives{}",
                          describe(operation.call), waited.count(), describe_awaited(operation),
                          describe_plan(operation.call)));
}

void Driver::throw_transfer_failed(const OperationState& operation, std::uint32_t index) {
  const Task& task = operation.task(index);
  const Network& network = *network_of(operation);
  const bool sends = task.kind == Task::Kind::net_send;
  throw_about(operation.call, network.failed_peer() >= 0 ? ErrorCode::peer_failed : ErrorCode::transport,
              fmt::format("{}: {} of {} bytes {} {} through {} failed: {}{}", describe(operation.call),
                          sends ? "the send" : "the receive", operation.bytes_of(task), sends ? "to" : "from",
                          rank_and_host(task.peer), network.name(), network.failure(),
                          describe_plan(operation.call)));
}

}  // namespace ddl::collectives
