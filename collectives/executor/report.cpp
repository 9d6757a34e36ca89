#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>
#include <vector>

#include "collectives/executor/driver.hpp"
#include "ddl/error.hpp"

namespace ddl::collectives {
namespace {

constexpr std::size_t most_peers_named = 8;

}  // namespace

std::string Driver::rank_and_host(int rank) const {
  return fmt::format("rank {} (host {})", rank, settings_.map.short_name(settings_.map.host_of(rank)));
}

std::string Driver::describe(const Call& call) const {
  return fmt::format("{} on {}", call.id.describe(), rank_and_host(settings_.rank));
}

std::string Driver::describe_plan(const Call& call) const {
  const std::shared_ptr<const ChosenPlan>& plan = call.program->plan();
  return plan ? fmt::format("; plan: {}", plan->text) : "";
}

void Driver::each_awaited(const OperationState& operation, const Awaited& visit) const {
  const PreparedProgram& program = operation.program();
  const auto size = static_cast<std::uint32_t>(program.steps().size());
  for (std::uint32_t run = 0; run < size; run = program.end_of_run(run)) {
    const StepWay& way = program.way(run);
    const bool is_post = program.step(run).kind == topology::StepKind::send && !way.by_network();
    if (is_post && operation.posts[way.slot].is_out) visit(way.peer, run, "not read");
    const std::uint32_t to_come = operation.arrivals_missing(run);
    // Skips runs that also wait for other runs.
    if (to_come == 0 || operation.missing[run] != to_come) continue;
    for (std::uint32_t i = run; i < program.end_of_run(run); ++i) {
      const bool waits =
          is_receive(program.step(i).kind) && operation.arrivals[program.way(i).slot].data == nullptr;
      if (waits) visit(program.way(i).peer, i, "not sent");
    }
  }
  for (const std::uint32_t index : operation.transferring) {
    const bool sends = program.step(index).kind == topology::StepKind::send;
    visit(program.way(index).peer, index, sends ? "not taken" : "not received");
  }
}

std::string Driver::describe_awaited(const OperationState& operation) const {
  struct Peer {
    int rank;
    std::string text;
    std::size_t more = 0;
  };
  std::vector<Peer> all;
  const std::shared_ptr<const ChosenPlan>& plan = operation.program().plan();
  each_awaited(operation, [&](int rank, std::uint32_t index, const char* what) {
    const auto known = std::ranges::find(all, rank, &Peer::rank);
    if (known != all.end()) {
      ++known->more;
      return;
    }
    const topology::Step& step = operation.step(index);
    std::string text = fmt::format("{} {} bytes", what, operation.bytes_of(index));
    if (plan && step.phase < plan->phases.size()) {
      text += fmt::format(" in {}, chunk {}", plan->phases[step.phase], step.chunk);
    }
    all.push_back({rank, std::move(text)});
  });
  // Names ranks together that are waited for in the same way.
  RankStatements statements;
  for (const Peer& each : all) {
    const std::string more = each.more == 0 ? "" : fmt::format("; {} messages more", each.more);
    statements.emplace_back(each.text + more, each.rank);
  }
  std::vector<std::string> parts;
  for (const auto& [text, ranks] : grouped(statements)) {
    const std::span<const int> named = std::span(ranks).first(std::min(ranks.size(), most_peers_named));
    const std::string more =
        ranks.size() > named.size() ? fmt::format(" and {} more", ranks.size() - named.size()) : "";
    const std::string who = ranks.size() == 1 ? rank_and_host(ranks.front())
                                              : fmt::format("ranks {}{}", fmt::join(named, ", "), more);
    parts.push_back(fmt::format("{} ({})", who, text));
  }
  return parts.empty() ? "the network" : fmt::format("{}", fmt::join(parts, ", "));
}

std::string Driver::describe_awaited() const {
  return operations_.empty() ? "" : describe_awaited(*operations_.front());
}

void Driver::throw_about(const Call& call, ErrorCode code, const std::string& text, std::string brief) {
  about_ = {call.id, brief.empty() ? text : std::move(brief)};
  throw Error(code, text);
}

void Driver::throw_differs(const Call& call, int rank) {
  throw_about(
      call, ErrorCode::mismatch,
      fmt::format("{}: {} has called something else; all ranks must call the same collectives with the "
                  "same counts, types, operations and roots, in the same order",
                  describe(call), rank_and_host(rank)));
}

void Driver::throw_timeout(const OperationState& operation) {
  const std::chrono::duration<double> waited = Clock::now() - operation.started;
  const std::string brief =
      fmt::format("{}: the deadline passed after {:.3g} s", describe(operation.call()), waited.count());
  throw_about(operation.call(), ErrorCode::timeout,
              fmt::format("{} while waiting for {}. Either that rank is stuck or slow (a longer deadline: "
                          "DDL_DEADLINE, in seconds), or the ranks called different collectives{}",
                          brief, describe_awaited(operation), describe_plan(operation.call())),
              brief);
}

void Driver::throw_transfer_failed(const OperationState& operation, std::uint32_t index) {
  const Network& network = *network_of(operation);
  const bool sends = operation.step(index).kind == topology::StepKind::send;
  throw_about(operation.call(), network.failed_peer() >= 0 ? ErrorCode::peer_failed : ErrorCode::transport,
              fmt::format("{}: {} of {} bytes {} {} through {} failed: {}{}", describe(operation.call()),
                          sends ? "the send" : "the receive", operation.bytes_of(index),
                          sends ? "to" : "from", rank_and_host(operation.way(index).peer), network.name(),
                          network.failure(), describe_plan(operation.call())));
}

}  // namespace ddl::collectives
