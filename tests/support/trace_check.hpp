#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

namespace ddl::test {

/// Reads a trace as a viewer does. Throws if it is malformed.
class Trace {
 public:
  explicit Trace(const std::string& path) {
    std::ifstream file(path);
    if (!file) throw std::runtime_error("there is no trace " + path);
    const nlohmann::json document = nlohmann::json::parse(file);
    for (const nlohmann::json& event : document.at("traceEvents")) {
      const std::string kind = event.at("ph");
      if (kind == "M") {
        meta_.push_back(event);
      } else if (kind == "X" || kind == "i") {
        event.at("pid").get<int>();
        event.at("tid").get<int>();
        event.at("ts").get<double>();
        if (kind == "X" && event.at("dur").get<double>() < 0) throw std::runtime_error("a negative duration");
        events_.push_back(event);
      } else {
        throw std::runtime_error("unknown kind of event " + kind);
      }
    }
  }

  [[nodiscard]] const std::vector<nlohmann::json>& events() const noexcept { return events_; }
  [[nodiscard]] std::vector<nlohmann::json> named(const std::string& name, int rank) const {
    std::vector<nlohmann::json> found;
    for (const nlohmann::json& event : events_) {
      if (event.at("name") == name && event.at("pid") == rank) found.push_back(event);
    }
    return found;
  }
  [[nodiscard]] std::set<int> ranks() const {
    std::set<int> found;
    for (const nlohmann::json& event : events_) found.insert(event.at("pid").get<int>());
    return found;
  }
  /// Returns, e.g., "rank 0 (host)".
  [[nodiscard]] std::string process(int rank) const { return meta("process_name", rank).at("name"); }
  [[nodiscard]] std::int64_t dropped(int rank) const { return meta("ddl_rank", rank).at("dropped"); }
  [[nodiscard]] double clock_error_us(int rank) const { return meta("ddl_rank", rank).at("clock_error_us"); }
  [[nodiscard]] std::set<std::string> tracks(int rank) const {
    std::set<std::string> found;
    for (const nlohmann::json& event : meta_) {
      if (event.at("name") == "thread_name" && event.at("pid") == rank) {
        found.insert(event.at("args").at("name").get<std::string>());
      }
    }
    return found;
  }

  /// Checks the all-reduces and barriers of all ranks: none may end on a rank before all ranks have called
  /// it. Returns their number.
  std::size_t require_one_clock(int ranks) const {
    struct Seen {
      int ranks = 0;
      double last_called = -1e300;
      double first_ended = 1e300;
    };
    std::map<std::pair<int, std::uint64_t>, Seen> calls;
    double error = 0.002;  // rounding of the trace's times
    for (int rank = 0; rank < ranks; ++rank) error = std::max(error, 2 * clock_error_us(rank) + 0.002);
    for (const nlohmann::json& event : events_) {
      const bool counts = event.at("name") == "all_reduce" || event.at("name") == "barrier";
      if (event.value("cat", "") != "collective" || !counts) continue;
      const nlohmann::json& arguments = event.at("args");
      if (arguments.contains("compares_plans") || arguments.contains("failed")) continue;
      Seen& seen = calls[{arguments.at("communicator"), arguments.at("sequence")}];
      ++seen.ranks;
      const double begin = event.at("ts");
      seen.last_called = std::max(seen.last_called, begin - arguments.at("queued_us").get<double>());
      seen.first_ended = std::min(seen.first_ended, begin + event.at("dur").get<double>());
    }
    std::size_t complete = 0;
    for (const auto& [call, seen] : calls) {
      if (seen.ranks != ranks) continue;
      ++complete;
      if (seen.first_ended + error < seen.last_called) {
        throw std::runtime_error(fmt::format("call {} ended at {} us on one rank, but another came at {} us",
                                             call.second, seen.first_ended, seen.last_called));
      }
    }
    return complete;
  }

 private:
  [[nodiscard]] const nlohmann::json& meta(const std::string& name, int rank) const {
    for (const nlohmann::json& event : meta_) {
      if (event.at("name") == name && event.at("pid") == rank) return event.at("args");
    }
    throw std::runtime_error(fmt::format("rank {} has no {}", rank, name));
  }

  std::vector<nlohmann::json> events_;
  std::vector<nlohmann::json> meta_;
};

}  // namespace ddl::test
