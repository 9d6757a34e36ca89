// scaling: the time of a training step by number of workers, and how much of the reduction overlaps with
// backward.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "ddl/error.hpp"
#include "ddl/tools/command_line.hpp"
#include "ddl/tools/plan_report.hpp"
#include "ddl/tools/topo_commands.hpp"
#include "ddl/topology/program.hpp"
#include "topology/text.hpp"

namespace {

using ddl::tools::CommandLine;
using ddl::tools::Flag;
using ddl::tools::UsageError;
using ddl::topology::Plan;
using ddl::topology::Planner;
using ddl::topology::Topology;

constexpr std::string_view help =
    R"(scaling: the time of a training step by number of workers

  scaling                                  simulates the reference model on 1 to 16 GPUs of four IBM AC922
  scaling --topology dgx1v:4 --workers 1,8,16,32
  scaling --topology ethernet:4x4@10gbit --bytes 100M --compute-ms 900 --buckets 8M
  scaling --json rows.jsonl                also writes the rows as JSON lines; - prints only these

Options
  --source simulated       the source of times; only this one exists
  --topology NAME|FILE|-   a preset (ddl-topo presets) or a file; default ac922:4
  --bytes N                bytes of all gradients; K, M and G are powers of 1024; default 717668352
  --compute-ms X           compute time of a step on one worker, two thirds of it backward; default 360
  --workers N,N,...        default 1,2,4,8,12,16
  --buckets N              size in bytes of the buckets that are reduced during backward; default 25M
  --json FILE              writes the rows as JSON lines
  -h, --help

Each worker computes as much as a single one, so the speed-up is workers x time of one / time of a step. "after": one
all-reduce of all gradients follows backward. "overlapped": gradients become ready evenly during backward; a bucket's
all-reduce starts when its gradients are ready and the previous bucket is reduced. The time of an all-reduce is simulated
for the plan that the planner chooses, and does not slow down compute.
Rows: source, workers, mode, step_ms, speedup, efficiency, hidden (share of the all-reduces' time that overlaps with
backward), plan, plan_hash, bytes, bucket_bytes, reduction_ms, bound_ms, topology.
)";

constexpr std::uint64_t reference_bytes = 717'668'352;
constexpr double reference_compute_ms = 360;
constexpr double backward_share = 2.0 / 3;
constexpr double most_transfers = 2e7;

/// The article's times per step in milliseconds (IBM DDL on AC922, four V100 per host).
constexpr std::array<std::pair<int, double>, 6> article = {
    {{1, 360}, {2, 450}, {4, 560}, {8, 680}, {12, 690}, {16, 700}}};

struct Settings {
  std::string topology = "ac922:4";
  std::uint64_t bytes = reference_bytes;
  double compute_ms = reference_compute_ms;
  std::vector<int> workers = {1, 2, 4, 8, 12, 16};
  std::uint64_t bucket_bytes = std::uint64_t{25} << 20;
  std::string json;

  [[nodiscard]] bool is_reference() const {
    return topology.starts_with("ac922") && bytes == reference_bytes && compute_ms == reference_compute_ms;
  }
};

struct Row {
  int workers = 0;
  bool overlapped = false;
  double step_ms = 0;
  double speedup = 0;
  double efficiency = 0;
  double hidden = 0;
  double reduction_ms = 0;  // for all buckets
  double bound_ms = 0;      // for one all-reduce of everything
  Plan plan;                // for a full bucket
};

/// The plans of all-reduces and their simulated times, for one number of workers.
class Reductions {
 public:
  Reductions(const Topology& topology, int workers) : planner_(topology, place_by_host(topology, workers)) {}

  struct Reduction {
    Plan plan;
    double ms = 0;
  };

  const Reduction& of(std::uint64_t bytes) {
    if (const auto found = known_.find(bytes); found != known_.end()) return found->second;
    ddl::topology::PlanRequest request;
    request.bytes = bytes;
    Reduction result{planner_.choose(request), 0};
    if (const double transfers = planner_.transfers(result.plan); transfers > most_transfers) {
      throw ddl::Error(ddl::ErrorCode::invalid_argument,
                       fmt::format("{} workers: found a schedule of about {:.2g} transfers, expected at most "
                                   "{:.2g}; give fewer workers, or smaller --buckets",
                                   planner_.placement().size(), transfers, most_transfers));
    }
    const auto schedule = schedule_to_run(result.plan, bytes / size_of(result.plan.type), 0,
                                          planner_.topology(), planner_.placement());
    result.ms = simulate(planner_.topology(), planner_.placement(), schedule).total_us / 1e3;
    return known_.emplace(bytes, std::move(result)).first->second;
  }

 private:
  Planner planner_;
  std::map<std::uint64_t, Reduction> known_;
};

Row row_of(const Settings& settings, Reductions& reductions, int workers, bool overlapped) {
  Row row;
  row.workers = workers;
  row.overlapped = overlapped;
  const std::uint64_t bucket = overlapped ? std::min(settings.bucket_bytes, settings.bytes) : settings.bytes;
  row.plan = reductions.of(bucket).plan;
  row.bound_ms = reductions.of(settings.bytes).plan.bound_us / 1e3;
  const double backward_ms = settings.compute_ms * backward_share;
  const double forward_ms = settings.compute_ms - backward_ms;
  double idle_from = 0;  // when the previous reduction ends
  for (std::uint64_t done = 0; done < settings.bytes;) {
    const std::uint64_t bytes = std::min(bucket, settings.bytes - done);
    done += bytes;
    const double ready =
        forward_ms + backward_ms * static_cast<double>(done) / static_cast<double>(settings.bytes);
    const double ms = reductions.of(bytes).ms;
    idle_from = std::max(idle_from, ready) + ms;
    row.reduction_ms += ms;
  }
  row.step_ms = std::max(settings.compute_ms, idle_from);
  const double shown_ms = row.step_ms - settings.compute_ms;
  row.hidden = row.reduction_ms > 0 ? std::clamp(1 - shown_ms / row.reduction_ms, 0.0, 1.0) : 0;
  row.speedup = workers * settings.compute_ms / row.step_ms;
  row.efficiency = row.speedup / workers;
  return row;
}

std::string mode_of(const Row& row) { return row.overlapped ? "overlapped" : "after"; }

std::string json_of(const Settings& settings, const Row& row) {
  const nlohmann::ordered_json json = {{"source", "simulated"},
                                       {"topology", settings.topology},
                                       {"workers", row.workers},
                                       {"mode", mode_of(row)},
                                       {"step_ms", row.step_ms},
                                       {"speedup", row.speedup},
                                       {"efficiency", row.efficiency},
                                       {"hidden", row.hidden},
                                       {"bytes", settings.bytes},
                                       {"bucket_bytes", row.plan.bytes},
                                       {"compute_ms", settings.compute_ms},
                                       {"reduction_ms", row.reduction_ms},
                                       {"bound_ms", row.bound_ms},
                                       {"plan", ddl::tools::short_name(row.plan)},
                                       {"plan_hash", fmt::format("{:016x}", hash(row.plan))}};
  return json.dump() + "\n";
}

std::string text_of(const Settings& settings, const std::vector<Row>& rows) {
  std::string text = fmt::format(
      "simulated, not measured: {} of gradients, {:.4g} ms of compute a step, workers placed by host on "
      "{}\n\n",
      ddl::format_bytes(static_cast<double>(settings.bytes)), settings.compute_ms, settings.topology);
  std::vector<std::string> header = {">WORKERS",    "REDUCTION", ">STEP ms",      ">SPEED-UP",
                                     ">EFFICIENCY", ">HIDDEN",   ">REDUCTION ms", ">BOUND ms"};
  const bool with_article = settings.is_reference();
  if (with_article) header.insert(header.end(), {">ARTICLE ms", ">ARTICLE SPEED-UP"});
  header.emplace_back("PLAN");
  ddl::TextTable table(header);
  for (const Row& row : rows) {
    std::vector<std::string> cells = {std::to_string(row.workers),
                                      row.overlapped ? "overlapped" : "after backward",
                                      fmt::format("{:.1f}", row.step_ms),
                                      fmt::format("{:.2f}", row.speedup),
                                      fmt::format("{:.0f}%", 100 * row.efficiency),
                                      row.reduction_ms > 0 ? fmt::format("{:.0f}%", 100 * row.hidden) : "-",
                                      fmt::format("{:.1f}", row.reduction_ms),
                                      fmt::format("{:.1f}", row.bound_ms)};
    if (with_article) {
      const auto* const measured = std::ranges::find(article, row.workers, &std::pair<int, double>::first);
      const bool is_known = measured != article.end();
      cells.push_back(is_known ? fmt::format("{:.0f}", measured->second) : "-");
      cells.push_back(is_known ? fmt::format("{:.2f}", row.workers * article[0].second / measured->second)
                               : "-");
    }
    cells.push_back(row.workers == 1 ? "-" : ddl::tools::short_name(row.plan));
    table.add(std::move(cells));
  }
  text += table.text();
  if (with_article) {
    text +=
        "\nARTICLE: measured by its authors with IBM DDL on four AC922 and their own trainer; the simulation "
        "has\n"
        "no input pipeline, no stragglers, and links as fast as their makers say.\n";
  }
  return text;
}

std::vector<int> parse_workers(const std::string& text) {
  std::vector<int> result;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    int number = 0;
    const auto [rest, error] = std::from_chars(text.data() + begin, text.data() + end, number);
    if (error != std::errc{} || rest != text.data() + end || number < 1 || number > 1 << 20) {
      throw UsageError(
          fmt::format("--workers: found '{}', expected numbers from 1 to {}, as in 1,2,4,8", text, 1 << 20));
    }
    result.push_back(number);
    begin = end + 1;
  }
  return result;
}

void check_source(const std::string& source) {
  if (source == "simulated") return;
  throw UsageError(fmt::format(
      "--source: found '{}', expected simulated: times that are measured or emulated are not available yet",
      source));
}

Settings parse(std::span<const std::string> arguments) {
  constexpr std::array flags = {Flag{"--source", true},     Flag{"--topology", true}, Flag{"--bytes", true},
                                Flag{"--compute-ms", true}, Flag{"--workers", true},  Flag{"--buckets", true},
                                Flag{"--json", true}};
  const CommandLine line = ddl::tools::parse_flags(arguments, flags);
  check_source(line.value("--source", "simulated"));
  Settings settings;
  line.read("--topology", settings.topology);
  if (line.has("--bytes")) settings.bytes = ddl::tools::parse_bytes("--bytes", line.value("--bytes"));
  if (line.has("--buckets"))
    settings.bucket_bytes = ddl::tools::parse_bytes("--buckets", line.value("--buckets"));
  for (const auto& [flag, bytes] :
       {std::pair{"--bytes", settings.bytes}, {"--buckets", settings.bucket_bytes}}) {
    if (bytes % 4 != 0)
      throw UsageError(fmt::format("{}: found {}, expected a multiple of 4 (f32)", flag, bytes));
  }
  line.read("--compute-ms", settings.compute_ms, 1e-3, 1e9);
  if (line.has("--workers")) settings.workers = parse_workers(line.value("--workers"));
  line.read("--json", settings.json);
  return settings;
}

void run(std::span<const std::string> arguments) {
  const Settings settings = parse(arguments);
  const Topology topology = ddl::tools::named_topology(settings.topology, {});
  const auto devices = static_cast<int>(topology.devices().size());
  if (const int most = *std::ranges::max_element(settings.workers); most > devices) {
    throw UsageError(fmt::format("--workers: found {}, expected at most {}, the devices of {}", most, devices,
                                 settings.topology));
  }
  std::vector<Row> rows;
  for (const int workers : settings.workers) {
    Reductions reductions(topology, workers);
    for (const bool overlapped : {false, true})
      rows.push_back(row_of(settings, reductions, workers, overlapped));
  }
  std::ranges::stable_sort(rows, {}, &Row::overlapped);
  std::string lines;
  for (const Row& row : rows) lines += json_of(settings, row);
  if (!settings.json.empty()) ddl::tools::write_text(settings.json, lines);
  if (settings.json != "-") ddl::tools::write_text("-", text_of(settings, rows));
}

}  // namespace

int main(int argc, char** argv) {
  return ddl::tools::main_of("scaling", help, argc, argv, [](const std::vector<std::string>& words) {
    run(words);
    return 0;
  });
}
