// The quality of the planner's choices, by simulation; see --help.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ddl/error.hpp"
#include "ddl/tools/command_line.hpp"
#include "ddl/topology/planner.hpp"
#include "topology/planner/plan_shape.hpp"
#include "topology/planner/plan_trial.hpp"

namespace {

constexpr std::string_view help = R"(The quality of the planner's choices, by simulation.

  plan_quality [--collective NAME] [--preset NAME ...] [--ranks N ...] [--min BYTES] [--max BYTES]
               [--step FACTOR] [--within FACTOR] [--work TRANSFERS] [--round-robin] [--json FILE]

Prints for each machine, number of ranks and size the simulated time of the plan that `Planner::choose` returns,
divided by that of the best candidate, by the physical bound, and by that of a flat ring by host. The best
candidate is searched among those whose prediction is within a factor of the best prediction (`--within`, default
1.5), as far as a limit on simulated transfers allows (`--work`, default 300000 per case), and always among the
flat rings and the plan with the best prediction of each decomposition. Times of plans over TCP between hosts of
CPUs are multiplied by the cost model's factor for how they use it. Finally prints how many choices are within 2%,
5% and 25% of the best, and the worst choices.
)";

using namespace ddl::topology;

struct Options {
  Collective collective = Collective::all_reduce;
  std::vector<std::string> presets = {"ac922", "dgx1v", "dgx2", "dgx_a100", "dgx_h100", "ethernet", "host"};
  std::vector<int> ranks = {2, 3, 4, 8, 12, 16, 64};
  std::uint64_t least = 1024;
  std::uint64_t most = std::uint64_t{1} << 30;
  std::uint64_t step = 4;
  double within = 1.5;
  std::uint64_t work = 300'000;
  bool round_robin = false;
  std::string json;
};

Options parse(std::span<const std::string> arguments) {
  using ddl::tools::Flag;
  constexpr std::array flags = {Flag{"--collective", true},
                                Flag{.name = "--preset", .takes_value = true, .repeats = true},
                                Flag{.name = "--ranks", .takes_value = true, .repeats = true},
                                Flag{"--min", true},
                                Flag{"--max", true},
                                Flag{"--step", true},
                                Flag{"--within", true},
                                Flag{"--work", true},
                                Flag{"--round-robin"},
                                Flag{"--json", true}};
  constexpr std::uint64_t most_bytes = 1'000'000'000'000'000;
  const ddl::tools::CommandLine line = ddl::tools::parse_flags(arguments, flags);
  Options options;
  std::vector<std::pair<std::string_view, Collective>> collectives;
  for (const Collective collective : planned_collectives()) {
    collectives.emplace_back(to_string(collective), collective);
  }
  line.read("--collective", options.collective, collectives);
  if (line.has("--preset")) options.presets = line.values("--preset");
  line.read("--ranks", options.ranks, 1, 4096);
  line.read("--min", options.least, 1, most_bytes);
  line.read("--max", options.most, 1, most_bytes);
  line.read("--step", options.step, 2, 1'000'000);
  line.read("--within", options.within, 1, 1e6);
  line.read("--work", options.work, 0, 1'000'000'000'000);
  options.round_robin = line.has("--round-robin");
  line.read("--json", options.json);
  return options;
}

/// The preset with as many hosts as the ranks need.
std::string preset_for(const std::string& name, int ranks) {
  constexpr int ranks_of_ethernet_host = 4;
  if (name == "host") return fmt::format("host:{}", ranks);
  int each = ranks_of_ethernet_host;
  for (const Preset& preset : presets()) {
    if (preset.name == name && preset.devices_per_host > 0) each = preset.devices_per_host;
  }
  const int hosts = (ranks + each - 1) / each;
  return name == "ethernet" ? fmt::format("ethernet:{}x{}", hosts, each) : fmt::format("{}:{}", name, hosts);
}

struct Row {
  std::string topology;
  int ranks = 0;
  std::uint64_t bytes = 0;
  Plan chosen;
  Plan best;
  double chosen_us = 0;
  double best_us = 0;
  double ring_us = 0;
  double choose_us = 0;
  std::size_t candidates = 0;
  std::size_t simulated = 0;

  [[nodiscard]] double over_best() const { return chosen_us / best_us; }
};

std::string describe(const Plan& plan) {
  std::string ways;
  for (const PlanDimension& dimension : plan.dimensions) {
    ways += fmt::format("{}{}", ways.empty() ? "" : " + ", to_string(dimension.algorithm));
  }
  return fmt::format("{} {}, {}, C={}", to_string(plan.decomposition), plan.order_name, ways, plan.chunks);
}

std::string steps_of(const Plan& plan) {
  PlanShape shape{0, plan.decomposition, {}};
  for (const PlanDimension& dimension : plan.dimensions) shape.algorithms.push_back(dimension.algorithm);
  return plan.order_name + steps_of(shape, plan.chunks);
}

/// Judges plans by the simulated time of the programs that the ranks run, slowed down as TCP slows it down.
class Judge {
 public:
  Judge(const Topology& topology, const Placement& placement) : trial_(topology, placement, {}) {}

  double time(const Plan& plan) {
    const auto [entry, is_new] = known_.try_emplace(steps_of(plan), 0);
    if (is_new) {
      const Simulation simulation = trial_.run(plan);
      entry->second = simulation.total_us * trial_.tcp_slowdown(plan, plan.bytes, plan.chunks);
      transfers_ += simulation.transfers;
    }
    return entry->second;
  }
  [[nodiscard]] bool knows(const Plan& plan) const { return known_.contains(steps_of(plan)); }
  [[nodiscard]] std::uint64_t transfers() const { return transfers_; }
  [[nodiscard]] std::size_t simulated() const { return known_.size(); }
  void forget() {
    known_.clear();
    transfers_ = 0;
  }

 private:
  PlanTrial trial_;
  std::map<std::string, double> known_;
  std::uint64_t transfers_ = 0;
};

Row judge(const Options& options, Planner& planner, Judge& judge, std::uint64_t bytes) {
  Row row;
  row.ranks = static_cast<int>(planner.placement().size());
  row.bytes = bytes;
  const PlanRequest request{options.collective, bytes};
  const auto start = std::chrono::steady_clock::now();
  row.chosen = planner.choose(request);
  row.choose_us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  judge.forget();
  row.chosen_us = judge.time(row.chosen);
  row.best = row.chosen;
  row.best_us = row.chosen_us;
  row.ring_us = 1e300;

  const auto candidates = planner.candidates(request);
  row.candidates = candidates.size();
  const auto consider = [&](const Plan& plan) {
    const double time = judge.time(plan);
    if (time < row.best_us) {
      row.best_us = time;
      row.best = plan;
    }
    return time;
  };
  std::set<std::string> decompositions;
  for (const Plan& plan : candidates) {
    const bool is_flat_ring = plan.dimensions.size() == 1 &&
                              plan.dimensions[0].algorithm == Algorithm::ring &&
                              plan.further_orders.empty() && row.ranks > 1;
    const bool is_first = decompositions.insert(plan.order_name + to_string(plan.decomposition)).second;
    const bool is_near = plan.predicted_us <= options.within * row.chosen.predicted_us;
    const bool is_wanted =
        (is_flat_ring && plan.chunks == 1) || ((is_first || is_near) && judge.transfers() < options.work);
    if (!is_wanted) continue;
    const double time = consider(plan);
    if (is_flat_ring) row.ring_us = std::min(row.ring_us, time);
  }
  if (row.ranks == 1) row.ring_us = row.chosen_us;
  row.simulated = judge.simulated();
  return row;
}

double ratio(double a, double b) { return b > 0 ? a / b : 1; }

void print(const Row& row) {
  fmt::print("{:<14} {:>4} {:>11}  {:>10.2f} {:>6.3f} {:>7.2f} {:>6.3f} {:>6.2f} {:>7.2f} {:>5}/{:<6} {}\n",
             row.topology, row.ranks, row.bytes, row.chosen_us, ratio(row.chosen_us, row.best_us),
             ratio(row.chosen_us, row.chosen.bound_us), ratio(row.chosen_us, row.ring_us),
             ratio(row.chosen.predicted_us, row.chosen_us), row.choose_us / 1e3, row.simulated,
             row.candidates, describe(row.chosen));
  std::fflush(stdout);
}

std::string json_line(const Row& row) {
  return fmt::format(
      R"({{"topology": "{}", "ranks": {}, "bytes": {}, "plan": "{}", "chosen_us": {}, "best_us": {}, "bound_us": {}, )"
      R"("flat_ring_us": {}, "predicted_us": {}, "choose_us": {:.0f}, "best_plan": "{}", "simulated": {}, "candidates": {}}})",
      row.topology, row.ranks, row.bytes, describe(row.chosen), row.chosen_us, row.best_us,
      row.chosen.bound_us, row.ring_us, row.chosen.predicted_us, row.choose_us, describe(row.best),
      row.simulated, row.candidates);
}

void summarise(std::vector<Row> rows) {
  const auto share = [&](double limit) {
    const auto within = std::ranges::count_if(rows, [&](const Row& row) { return row.over_best() <= limit; });
    return fmt::format("{} of {} ({:.1f}%)", within, rows.size(),
                       100.0 * static_cast<double>(within) / static_cast<double>(rows.size()));
  };
  fmt::print("\nchosen / best: within 1.02 {}, within 1.05 {}, within 1.25 {}\n", share(1.02), share(1.05),
             share(1.25));
  std::ranges::stable_sort(rows, std::ranges::greater{}, &Row::over_best);
  constexpr std::size_t most = 20;
  for (std::size_t i = 0; i < std::min(most, rows.size()) && rows[i].over_best() > 1.02; ++i) {
    fmt::print(
        "  {:.3f} {} {} ranks, {} bytes: {} ({:.1f} us, predicted {:.1f})\n        best {} ({:.1f} us, "
        "predicted {:.1f})\n",
        rows[i].over_best(), rows[i].topology, rows[i].ranks, rows[i].bytes, describe(rows[i].chosen),
        rows[i].chosen_us, rows[i].chosen.predicted_us, describe(rows[i].best), rows[i].best_us,
        rows[i].best.predicted_us);
  }
}

void run(const Options& options) {
  fmt::print("{:<14} {:>4} {:>11}  {:>10} {:>6} {:>7} {:>6} {:>6} {:>7} {:>12} {}\n", "topology", "rank",
             "bytes", "chosen us", "/best", "/bound", "/ring", "pred.", "ms", "simulated", "plan");
  std::vector<Row> rows;
  for (const std::string& preset : options.presets) {
    for (const int ranks : options.ranks) {
      const std::string name = preset_for(preset, ranks);
      const Topology topology = make_preset(name);
      const Placement placement =
          options.round_robin ? place_round_robin(topology, ranks) : place_by_host(topology, ranks);
      Planner planner(topology, placement);
      Judge simulated(topology, placement);
      for (std::uint64_t bytes = options.least; bytes <= options.most; bytes *= options.step) {
        rows.push_back(judge(options, planner, simulated, bytes));
        rows.back().topology = name;
        print(rows.back());
      }
    }
  }
  summarise(rows);
  if (options.json.empty()) return;
  std::ofstream file(options.json);
  for (const Row& row : rows) file << json_line(row) << '\n';
  file.flush();
  if (!file) throw ddl::Error(ddl::ErrorCode::io, fmt::format("{}: cannot write", options.json));
}

}  // namespace

int main(int argc, char** argv) {
  return ddl::tools::main_of("plan_quality", help, argc, argv, [](const std::vector<std::string>& words) {
    run(parse(words));
    return 0;
  });
}
