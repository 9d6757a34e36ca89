#include "collectives/watch/exit_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "topology/json_text.hpp"

namespace ddl::collectives {
namespace {

using json = nlohmann::ordered_json;
using Kind = JobFailure::Kind;
using Life = RankReport::Life;
using State = FlightRecord::State;

constexpr std::array kinds = {Kind::died, Kind::threw, Kind::stuck, Kind::differs, Kind::network};
constexpr std::array lives = {Life::answers, Life::silent, Life::dead, Life::left};
constexpr std::array states = {State::called, State::begun, State::finished, State::failed};
constexpr std::array types = {DataType::u8,  DataType::i32, DataType::i64, DataType::f32,
                              DataType::f64, DataType::f16, DataType::bf16};
constexpr std::array ops = {ReduceOp::sum, ReduceOp::avg, ReduceOp::min, ReduceOp::max, ReduceOp::prod};
/// Jobs with more ranks get groups in place of a line for each.
constexpr std::size_t most_lines = 32;

std::string name_of(const RankReport& report) {
  return fmt::format("rank {} (host {}, pid {})", report.rank, report.host, report.pid);
}

std::string seconds(double value) { return fmt::format("{:.3g} s", value); }

std::string scope_of(const RankReport& report) {
  return report.scope.empty() ? "" : fmt::format("; {}", report.scope);
}

/// What a rank is at, said after its name.
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

std::string heading(Life life) {
  switch (life) {
    case Life::answers:
      return {};
    case Life::silent:
      return "does not answer (stopped, or out of reach): ";
    case Life::dead:
      return "dead: ";
    case Life::left:
      return "has left the job: ";
  }
  return {};
}

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

/// Equal statements, and who they are about; in the order of the first one each is about.
class Groups {
 public:
  void add(std::string statement, int rank) {
    const auto found = std::ranges::find(groups_, statement, &Group::statement);
    if (found != groups_.end()) {
      found->ranks.push_back(rank);
    } else {
      groups_.push_back({std::move(statement), {rank}});
    }
  }
  [[nodiscard]] std::string text() const {
    std::string text;
    for (const Group& group : groups_) {
      text += fmt::format("\n  {}: {}", ranks_in_words(group.ranks), group.statement);
    }
    return text;
  }

 private:
  struct Group {
    std::string statement;
    std::vector<int> ranks;
  };
  std::vector<Group> groups_;
};

std::string who_called_what(const ExitReport& report) {
  Groups groups;
  for (const RankReport& rank : report.ranks) {
    groups.add(rank.same ? "called " + rank.same->describe()
                         : fmt::format("called nothing as #{}", report.failure.sequence),
               rank.rank);
  }
  return groups.text();
}

template <typename All>
auto value_named(const json& object, const char* field, const All& all) {
  const auto value = topology::named(all, object.at(field).get<std::string>());
  if (!value) throw Error(ErrorCode::corrupt_data, fmt::format("{}: unknown value", field));
  return *value;
}

std::string text_at(const json& object, const char* field) { return object.at(field).get<std::string>(); }

json to_object(const FlightRecord& record) {
  return {{"name", record.name},
          {"communicator", record.communicator},
          {"sequence", record.sequence},
          {"count", record.count},
          {"type", to_string(record.type)},
          {"op", to_string(record.op)},
          {"root", record.root},
          {"state", to_string(record.state)},
          {"called_ago_s", record.called_ago},
          {"ended_ago_s", record.ended_ago}};
}

FlightRecord record_from(const json& object) {
  FlightRecord record;
  record.name = text_at(object, "name");
  object.at("communicator").get_to(record.communicator);
  object.at("sequence").get_to(record.sequence);
  object.at("count").get_to(record.count);
  record.type = value_named(object, "type", types);
  record.op = value_named(object, "op", ops);
  object.at("root").get_to(record.root);
  record.state = value_named(object, "state", states);
  object.at("called_ago_s").get_to(record.called_ago);
  object.at("ended_ago_s").get_to(record.ended_ago);
  return record;
}

json to_object(const JobFailure& failure) {
  return {{"kind", to_string(failure.kind)},
          {"rank", failure.rank},
          {"text", failure.text},
          {"communicator", failure.communicator},
          {"sequence", failure.sequence}};
}

JobFailure failure_from(const json& object) {
  JobFailure failure;
  failure.kind = value_named(object, "kind", kinds);
  object.at("rank").get_to(failure.rank);
  failure.text = text_at(object, "text");
  object.at("communicator").get_to(failure.communicator);
  object.at("sequence").get_to(failure.sequence);
  return failure;
}

json to_object(const RankReport& report) {
  json object{{"rank", report.rank},   {"host", report.host},
              {"pid", report.pid},     {"life", to_string(report.life)},
              {"scope", report.scope}, {"waits_for", report.waits_for}};
  if (report.inside) object["inside"] = to_object(*report.inside);
  if (report.last) object["last"] = to_object(*report.last);
  if (report.same) object["same"] = to_object(*report.same);
  return object;
}

RankReport rank_report_from(const json& object) {
  RankReport report;
  object.at("rank").get_to(report.rank);
  report.host = text_at(object, "host");
  object.at("pid").get_to(report.pid);
  report.life = value_named(object, "life", lives);
  report.scope = text_at(object, "scope");
  report.waits_for = text_at(object, "waits_for");
  if (object.contains("inside")) report.inside = record_from(object.at("inside"));
  if (object.contains("last")) report.last = record_from(object.at("last"));
  if (object.contains("same")) report.same = record_from(object.at("same"));
  return report;
}

std::string dumped(const json& object) {
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Memory follows the message's length: nothing in it is a number of things to allocate.
template <typename From>
auto parsed(std::string_view message, const char* what, From from) {
  try {
    return from(json::parse(message));
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCode::corrupt_data, fmt::format("{}: {}", what, topology::json_problem(error)));
  }
}

}  // namespace

std::string_view to_string(JobFailure::Kind kind) noexcept {
  switch (kind) {
    case Kind::died:
      return "died";
    case Kind::threw:
      return "threw";
    case Kind::stuck:
      return "stuck";
    case Kind::differs:
      return "differs";
    case Kind::network:
      return "network";
  }
  return "";
}

JobFailure::Kind failure_kind(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::timeout:
      return Kind::stuck;
    case ErrorCode::mismatch:
      return Kind::differs;
    case ErrorCode::transport:
    case ErrorCode::peer_failed:
      return Kind::network;
    default:
      return Kind::threw;
  }
}

std::string_view to_string(RankReport::Life life) noexcept {
  switch (life) {
    case Life::answers:
      return "answers";
    case Life::silent:
      return "silent";
    case Life::dead:
      return "dead";
    case Life::left:
      return "left";
  }
  return "";
}

std::string ExitReport::text() const {
  std::string text = failure.text;
  if (!scope.empty()) text += fmt::format(" (this report covers {})", scope);
  if (failure.kind == Kind::differs && failure.sequence != 0) text += who_called_what(*this);
  // The culprits first.
  for (const Life life : {Life::dead, Life::silent, Life::answers, Life::left}) {
    if (ranks.size() <= most_lines) {
      for (const RankReport& rank : ranks) {
        if (rank.life != life) continue;
        text += fmt::format("\n  {}: {}{}", name_of(rank), heading(life), doing(rank, failure));
      }
      continue;
    }
    Groups groups;
    for (const RankReport& rank : ranks) {
      if (rank.life != life) continue;
      const std::string calls = rank.inside ? "inside " + rank.inside->describe()
                                : rank.last ? "outside of collectives, after " + rank.last->describe()
                                            : "outside of collectives";
      groups.add(heading(life) + calls + scope_of(rank), rank.rank);
    }
    text += groups.text();
  }
  return text;
}

std::string ExitReport::json() const {
  nlohmann::ordered_json object{{"failure", to_object(failure)}, {"scope", scope}};
  auto& all = object["ranks"] = nlohmann::ordered_json::array();
  for (const RankReport& rank : ranks) all.push_back(to_object(rank));
  return dumped(object);
}

void find_differences(ExitReport& report) {
  JobFailure& failure = report.failure;
  // A rank that had failed by itself, before it heard of this failure, has told of another call.
  for (RankReport& rank : report.ranks) {
    const bool is_same = rank.same && rank.same->communicator == failure.communicator &&
                         rank.same->sequence == failure.sequence;
    if (!is_same) rank.same.reset();
  }
  if (failure.kind != Kind::stuck || failure.sequence == 0) return;
  std::optional<std::string> first;
  for (const RankReport& rank : report.ranks) {
    if (!rank.same) continue;
    if (!first) first = rank.same->describe();
    if (*first == rank.same->describe()) continue;
    failure.kind = Kind::differs;
    failure.text += "; the ranks have called different things";
    return;
  }
}

void describe_calls(RankReport& report, const std::vector<FlightRecord>& records, const JobFailure& failure) {
  for (const FlightRecord& record : records) {
    // Those that the failure itself has ended were not over when it came.
    const bool is_over = record.state == State::finished;
    if (is_over) report.last = record;
    if (!is_over && !report.inside) report.inside = record;
    if (record.communicator == failure.communicator && record.sequence == failure.sequence) {
      report.same = record;
    }
  }
}

std::string to_message(const JobFailure& failure) { return dumped(to_object(failure)); }
JobFailure parse_failure(std::string_view message) { return parsed(message, "a failure", failure_from); }
ExitReport parse_report(std::string_view message) {
  return parsed(message, "an exit report", [](const json& object) {
    ExitReport report;
    report.failure = failure_from(object.at("failure"));
    report.scope = text_at(object, "scope");
    for (const json& rank : object.at("ranks")) report.ranks.push_back(rank_report_from(rank));
    return report;
  });
}

}  // namespace ddl::collectives
