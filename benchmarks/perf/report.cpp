#include "perf/report.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <system_error>

#include "ddl/error.hpp"
#include "perf/machine.hpp"

namespace perf {

namespace {

constexpr double noticed_share = 0.02;

/// Formats a time with about five significant digits.
std::string text_of_us(double us) {
  if (us < 1000) return fmt::format("{:.2f}", us);
  return us < 10000 ? fmt::format("{:.1f}", us) : fmt::format("{:.0f}", us);
}

/// GB/s, 1e9 bytes.
double bandwidth(const Row& row, double us) { return us > 0 ? static_cast<double>(row.bytes) / us / 1e3 : 0; }

std::string root_text(const Row& row) { return row.root ? std::to_string(*row.root) : "-1"; }
std::string op_text(const Row& row) { return row.op ? std::string(to_string(*row.op)) : "none"; }

/// The numbers of ranks per host, e.g. "4+3+2+1".
std::string shape_text(const ddl::topology::RankMap& map) {
  std::string text;
  for (const int ranks : ranks_per_host(map)) {
    if (!text.empty()) text += '+';
    text += std::to_string(ranks);
  }
  return text;
}

[[noreturn]] void fail(const std::string& path) {
  throw ddl::Error(ddl::ErrorCode::io,
                   fmt::format("--json {}: cannot write: {}; expected a file in a folder that exists", path,
                               std::generic_category().message(errno)));
}

}  // namespace

Report::Report(const Settings& settings, ddl::Context& context)
    : settings_(settings), ranks_(context.size()), map_(context.communicator().rank_map()) {
  if (!settings.json.empty()) {
    json_.open(settings.json, std::ios::app);
    if (!json_) fail(settings.json);
  }
  fmt::print("# ddl {} {}_perf: {} ranks on {} hosts ({}, placed {}), {}, {} memory\n", version(),
             to_string(settings.collective), ranks_, map_.hosts(), shape_text(map_), placement_of(map_),
             settings.in_process > 0 ? "threads" : "processes", settings.registered ? "registered" : "plain");
  fmt::print("# {} iterations after {}; time: the median of the slowest rank's\n#\n", settings.iterations,
             settings.warm_up);
  const std::string baseline(to_string(settings.baseline));
  const bool has_baseline = settings.baseline != BaselineKind::none;
  const auto place = [&](std::string_view times, std::string_view gbs, std::string_view gbs_too,
                         std::string_view wrong, std::string_view other, std::string_view ratio) {
    fmt::print("  {:>7}  {:>6}  {:>6} {:>6}", times, gbs, gbs_too, wrong);
    if (has_baseline) fmt::print("  {:>7} {:>6}", other, ratio);
  };
  const auto line = [&](auto... words) {
    for (int i = 0; i < int{settings.out_of_place} + int{settings.in_place}; ++i) place(words...);
  };
  fmt::print("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", "", "", "", "", "");
  for (const bool in_place : {false, true}) {
    if (in_place ? settings.in_place : settings.out_of_place) {
      const std::string_view title = in_place ? "in-place" : "out-of-place";
      const std::size_t blanks = (has_baseline ? 46U : 30U) - title.size();
      const std::string left(2 + blanks / 2, ' ');
      const std::string right(blanks - blanks / 2, ' ');
      fmt::print("{}{}{}", left, title, right);
    }
  }
  fmt::print("\n# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", "size", "count", "type", "redop", "root");
  line("time", "algbw", "busbw", "#wrong", baseline, "ratio");
  if (settings.predict) fmt::print("  {:>9}  {:>9}", "predicted", "simulated");
  fmt::print("\n# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", "(B)", "(elements)", "", "", "");
  line("(us)", "(GB/s)", "(GB/s)", "", "(us)", "");
  if (settings.predict) fmt::print("  {:>9}  {:>9}", "(us)", "(us)");
  fmt::print("\n");
}

void Report::add(const Row& row) {
  fmt::print("{:>12}  {:>12}  {:>8}  {:>6}  {:>6}", row.bytes, row.count, to_string(row.type), op_text(row),
             root_text(row));
  for (const Measured& measured : row.places) {
    const double algbw = bandwidth(row, measured.ours.median);
    const double busbw = algbw * bus_factor(settings_.collective, ranks_);
    fmt::print("  {:>7}  {:>6.2f}  {:>6.2f} {:>6}", text_of_us(measured.ours.median), algbw, busbw,
               measured.wrong ? std::to_string(*measured.wrong) : "N/A");
    if (settings_.baseline != BaselineKind::none) {
      if (measured.baseline) {
        fmt::print("  {:>7} {:>6.2f}", text_of_us(measured.baseline->median),
                   measured.baseline->median / measured.ours.median);
      } else {
        fmt::print("  {:>7} {:>6}", "N/A", "N/A");
      }
    }
    if (measured.stolen.value_or(0) > most_stolen_) {
      most_stolen_ = *measured.stolen;
      most_stolen_bytes_ = row.bytes;
    }
    repeated_ += measured.ours.repeated + (measured.baseline ? measured.baseline->repeated : 0);
    wrong_ += measured.wrong.value_or(0);
    bus_sum_ += busbw;
    ++bus_terms_;
    if (json_.is_open()) write_json(row, measured);
  }
  if (settings_.predict) {
    fmt::print("  {:>9}  {:>9}", row.prediction ? text_of_us(row.prediction->planned_us) : "N/A",
               row.prediction ? text_of_us(row.prediction->simulated_us) : "N/A");
  }
  fmt::print("\n");
  std::fflush(stdout);
}

void Report::write_json(const Row& row, const Measured& measured) {
  const double algbw = bandwidth(row, measured.ours.median);
  nlohmann::ordered_json json = {{"collective", to_string(settings_.collective)},
                                 {"bytes", row.bytes},
                                 {"count", row.count},
                                 {"type", to_string(row.type)},
                                 {"op", op_text(row)},
                                 {"root", row.root.value_or(-1)},
                                 {"ranks", ranks_},
                                 {"hosts", map_.hosts()},
                                 {"ranks_per_host", ranks_per_host(map_)},
                                 {"placement", placement_of(map_)},
                                 {"in_process", settings_.in_process > 0},
                                 {"registered", settings_.registered},
                                 {"in_place", measured.in_place}};
  if (row.plan) {
    json["plan"] = summary(*row.plan);
    json["plan_hash"] = fmt::format("{:016x}", hash(*row.plan));
  }
  json["iterations"] = settings_.iterations;
  if (settings_.disturbance < 1) json["repeated"] = measured.ours.repeated;
  json["calls"] = row.calls;
  json["time_us"] = measured.ours.median;
  json["min_us"] = measured.ours.least;
  json["algbw"] = algbw;
  json["busbw"] = algbw * bus_factor(settings_.collective, ranks_);
  json["wrong"] = measured.wrong ? nlohmann::ordered_json(*measured.wrong) : nlohmann::ordered_json(nullptr);
  json["baseline"] = to_string(settings_.baseline);
  if (measured.baseline) {
    if (settings_.disturbance < 1) json["baseline_repeated"] = measured.baseline->repeated;
    json["baseline_us"] = measured.baseline->median;
    json["baseline_min_us"] = measured.baseline->least;
    json["ratio"] = measured.baseline->median / measured.ours.median;
  }
  if (measured.stolen) json["stolen"] = *measured.stolen;
  if (row.prediction) {
    json["predicted_us"] = row.prediction->planned_us;
    json["simulated_us"] = row.prediction->simulated_us;
  }
  json["machine"] = {{"cpu", cpu_model()}, {"cores", cores()}, {"version", version()}};
  json_ << json.dump() << '\n' << std::flush;
  if (!json_) fail(settings_.json);
}

void Report::close() {
  fmt::print("# Out of bounds values : {} {}\n", wrong_, wrong_ == 0 ? "OK" : "FAILED");
  fmt::print("# Avg bus bandwidth    : {:.4g}\n", bus_terms_ > 0 ? bus_sum_ / bus_terms_ : 0);
  if (most_stolen_ >= noticed_share) {
    fmt::print("# Taken by hypervisor  : up to {:.0f}% of rank 0's machine, at {} B; try a quieter time\n",
               100 * most_stolen_, most_stolen_bytes_);
  }
  if (settings_.disturbance < 1) {
    fmt::print("# Repeated             : {} iterations, of which the hypervisor took more than {:g}%\n",
               repeated_, 100 * settings_.disturbance);
  }
  fmt::print("#\n");
  std::fflush(stdout);
}

}  // namespace perf
