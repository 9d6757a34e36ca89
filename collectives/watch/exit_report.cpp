#include "collectives/watch/exit_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "topology/json_fields.hpp"

namespace ddl::collectives {
namespace {

using FailureKind = JobFailure::Kind;
using Life = RankReport::Life;
using State = FlightRecord::State;

constexpr std::array<std::string_view, 5> kind_names = {"died", "threw", "stuck", "differs", "network"};
constexpr std::array<std::string_view, 4> life_names = {"answers", "silent", "dead", "left"};
/// How a report introduces ranks in each state.
constexpr std::array<std::string_view, 4> headings = {
    "", "does not answer (stopped, or out of reach): ", "dead: ", "has left the job: "};
/// Reports on more ranks group equal statements instead of listing each rank.
constexpr std::size_t most_lines = 32;

std::string seconds(double value) { return fmt::format("{:.3g} s", value); }

std::string scope_of(const RankReport& report) {
  return report.scope.empty() ? "" : fmt::format("; {}", report.scope);
}

/// What a rank is doing; follows its name.
std::string doing(const RankReport& report, const JobFailure& failure) {
  std::string text;
  if (report.inside) {
    text = fmt::format("inside {} for {}", report.inside->describe(), seconds(report.inside->called_ago));
    if (!report.waits_for.empty()) text += ", waiting for " + report.waits_for;
  } else {
    const bool is_late = failure.sequence != 0 && !report.same && report.life != Life::left;
    text = is_late ? fmt::format("has not arrived at #{}", failure.sequence) : "outside of collectives";
    if (report.last) {
      text += fmt::format("; its last was {}, over for {}", report.last->describe(),
                          seconds(report.last->ended_ago));
    }
  }
  return text + scope_of(report);
}

std::string_view heading(Life life) { return headings[as_index(life)]; }

/// "0-3, 7".
std::string ranks_in_words(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (i != 0) text += ", ";
    text += end - i == 1 ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[end - 1]);
    i = end;
  }
  return text;
}

/// A line for each statement, with the ranks that it applies to.
std::string lines_of(const RankStatements& statements) {
  std::string text;
  for (const auto& [statement, ranks] : grouped(statements)) {
    text += fmt::format("\n  {}: {}", ranks_in_words(ranks), statement);
  }
  return text;
}

std::string who_called_what(const ExitReport& report) {
  RankStatements statements;
  for (const RankReport& rank : report.ranks) {
    const std::string nothing = fmt::format("called nothing as #{}", report.failure.sequence);
    statements.emplace_back(rank.same ? "called " + rank.same->describe() : nothing, rank.rank);
  }
  return lines_of(statements);
}

/// For ranks that make calls of their own where others are in a gradient reducer's.
std::string hint_at_missing_wait(const ExitReport& report) {
  std::vector<int> inside;
  std::vector<int> outside;
  for (const RankReport& rank : report.ranks) {
    if (rank.same) (rank.same->purpose == CallPurpose::user ? outside : inside).push_back(rank.rank);
  }
  if (inside.empty() || outside.empty()) return "";
  return fmt::format(
      "\n  the gradient reducer's calls of {} meet other calls of {}: is wait() missing there?",
      ranks_in_words(inside), ranks_in_words(outside));
}

}  // namespace

std::vector<std::pair<std::string, std::vector<int>>> grouped(const RankStatements& statements) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (const auto& [statement, rank] : statements) {
    auto group = std::ranges::find(
        groups, statement, [](const auto& g) -> auto& { return g.first; });
    if (group == groups.end()) group = groups.insert(group, {statement, {}});
    group->second.push_back(rank);
  }
  return groups;
}

void describe(auto& fields, topology::MaybeConst<FlightRecord> auto& record) {
  fields.text(
      "name", record.name, [](const CallName& name) { return std::string(name.view()); },
      [](std::string_view text) { return std::optional<CallName>(text); }, "a name");
  fields("communicator", record.communicator);
  fields("sequence", record.sequence);
  fields("count", record.count);
  fields("type", record.type, topology::all_to<DataType::bf16>);
  fields("op", record.op, topology::all_to<ReduceOp::prod>);
  fields("root", record.root);
  fields("purpose", record.purpose, topology::all_to<CallPurpose::agreement>);
  fields("state", record.state, topology::all_to<State::failed>);
  fields("called_ago_s", record.called_ago);
  fields("ended_ago_s", record.ended_ago);
}

void describe(auto& fields, topology::MaybeConst<JobFailure> auto& failure) {
  fields("kind", failure.kind, topology::all_to<FailureKind::network>);
  fields("rank", failure.rank);
  fields("text", failure.text);
  fields("communicator", failure.communicator);
  fields("sequence", failure.sequence);
}

void describe(auto& fields, topology::MaybeConst<RankReport> auto& report) {
  fields("rank", report.rank);
  fields("host", report.host);
  fields("pid", report.pid);
  fields("life", report.life, topology::all_to<Life::left>);
  fields("scope", report.scope);
  fields("waits_for", report.waits_for);
  fields.optional("inside", report.inside, std::nullopt);
  fields.optional("last", report.last, std::nullopt);
  fields.optional("same", report.same, std::nullopt);
}

void describe(auto& fields, topology::MaybeConst<ExitReport> auto& report) {
  fields("failure", report.failure);
  fields("scope", report.scope);
  constexpr std::size_t most_ranks = std::size_t{1} << 20;
  fields("ranks", report.ranks, most_ranks);
}

std::string_view to_string(JobFailure::Kind kind) noexcept { return kind_names[as_index(kind)]; }

JobFailure::Kind failure_kind(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::timeout:
      return FailureKind::stuck;
    case ErrorCode::mismatch:
      return FailureKind::differs;
    case ErrorCode::transport:
    case ErrorCode::peer_failed:
      return FailureKind::network;
    default:
      return FailureKind::threw;
  }
}

std::string_view to_string(RankReport::Life life) noexcept { return life_names[as_index(life)]; }

std::string name_of(const RankReport& report) {
  return fmt::format("rank {} (host {}, pid {})", report.rank, report.host, report.pid);
}

std::string ExitReport::text() const {
  std::string text = failure.text;
  if (!scope.empty()) text += fmt::format(" (this report covers {})", scope);
  if (failure.kind == FailureKind::differs && failure.sequence != 0) {
    text += who_called_what(*this) + hint_at_missing_wait(*this);
  }
  // Failed ranks come first.
  for (const Life life : {Life::dead, Life::silent, Life::answers, Life::left}) {
    if (ranks.size() <= most_lines) {
      for (const RankReport& rank : ranks) {
        if (rank.life != life) continue;
        text += fmt::format("\n  {}: {}{}", name_of(rank), heading(life), doing(rank, failure));
      }
      continue;
    }
    RankStatements statements;
    for (const RankReport& rank : ranks) {
      if (rank.life != life) continue;
      const std::string calls = rank.inside ? "inside " + rank.inside->describe()
                                : rank.last ? "outside of collectives, after " + rank.last->describe()
                                            : "outside of collectives";
      statements.emplace_back(fmt::format("{}{}{}", heading(life), calls, scope_of(rank)), rank.rank);
    }
    text += lines_of(statements);
  }
  return text;
}

std::string ExitReport::json() const { return topology::json_line(*this); }

void find_differences(ExitReport& report) {
  JobFailure& failure = report.failure;
  // A rank that failed on its own before it heard of this failure reports another call.
  for (RankReport& rank : report.ranks) {
    const bool is_same = rank.same && rank.same->communicator == failure.communicator &&
                         rank.same->sequence == failure.sequence;
    if (!is_same) rank.same.reset();
  }
  if (failure.kind != FailureKind::stuck || failure.sequence == 0) return;
  std::optional<std::string> first;
  for (const RankReport& rank : report.ranks) {
    if (!rank.same) continue;
    if (!first) first = rank.same->describe();
    if (*first == rank.same->describe()) continue;
    failure.kind = FailureKind::differs;
    failure.text += "; the ranks have called different things";
    return;
  }
}

void describe_calls(RankReport& report, const std::vector<FlightRecord>& records, const JobFailure& failure) {
  for (const FlightRecord& record : records) {
    // A call that the failure itself ended was still running when the failure came.
    const bool is_over = record.state == State::finished;
    if (is_over) report.last = record;
    if (!is_over && !report.inside) report.inside = record;
    if (record.communicator == failure.communicator && record.sequence == failure.sequence) {
      report.same = record;
    }
  }
}

std::string to_message(const JobFailure& failure) { return topology::json_line(failure); }
JobFailure parse_failure(std::string_view message) {
  return topology::parsed_json<JobFailure>(message, "a failure");
}
ExitReport parse_report(std::string_view message) {
  return topology::parsed_json<ExitReport>(message, "an exit report");
}

}  // namespace ddl::collectives
