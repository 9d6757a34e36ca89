#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "ddl/tools/plan_report.hpp"
#include "topology/plan/algorithms.hpp"
#include "topology/planner/rank_order.hpp"
#include "topology/text.hpp"

namespace ddl::tools {
namespace {

using topology::Phase;
using topology::Plan;
using topology::Planner;
using topology::Simulation;

constexpr std::size_t most_links = 8;
constexpr std::size_t most_runs = 12;

std::string ratio_text(double value, double base) {
  if (base <= 0) return "-";
  const double ratio = value / base;
  return ratio < 99.95 ? fmt::format("{:.2f} x", ratio) : fmt::format("{:.0f} x", ratio);
}

std::string us_or_dash(const std::optional<double>& us) { return us ? format_us(*us) : "-"; }

std::string percent_text(double share) { return fmt::format("{:.0f}%", 100 * share); }

std::string phase_name(const Plan& plan, std::size_t phase) {
  const std::vector<Phase> phases = phases_of(plan);
  if (phase >= phases.size()) return "local";
  return fmt::format("{} {}", to_string(phases[phase].kind), phases[phase].dimension);
}

/// A stretch of the critical path within one phase.
struct Run {
  std::size_t phase = 0;
  double start_us = 0;
  double end_us = 0;
  std::size_t steps = 0;
  std::vector<int> ranks;  // in the order of the path, without consecutive repeats
};

std::vector<Run> runs_of(const PlanReport& report) {
  std::vector<Run> runs;
  for (const topology::SimulatedEvent& event : report.simulation->critical) {
    const topology::Step& step = report.schedule->ranks[as_index(event.rank)].steps[event.step];
    if (step.kind == topology::StepKind::finish) continue;
    if (runs.empty() || runs.back().phase != step.phase) {
      runs.push_back({step.phase, event.start_us, event.end_us, 0, {}});
    }
    Run& run = runs.back();
    run.end_us = std::max(run.end_us, event.end_us);
    ++run.steps;
    if (run.ranks.empty() || run.ranks.back() != event.rank) run.ranks.push_back(event.rank);
  }
  return runs;
}

std::string ranks_text(const std::vector<int>& ranks) {
  constexpr std::size_t most = 6;
  if (ranks.size() <= most) return fmt::format("{}", fmt::join(ranks, " "));
  return fmt::format("{} ... {}", fmt::join(std::span(ranks).first(most - 2), " "), ranks.back());
}

std::string critical_path_text(const PlanReport& report) {
  const std::vector<Run> runs = runs_of(report);
  std::map<std::size_t, std::pair<double, std::size_t>> phases;  // time and steps
  std::size_t steps = 0;
  for (const Run& run : runs) {
    phases[run.phase].first += run.end_us - run.start_us;
    phases[run.phase].second += run.steps;
    steps += run.steps;
  }
  std::string text =
      fmt::format("\ncritical path: {}, the chain that ends last\n", count_text(steps, "step"));
  if (runs.empty()) return text;
  TextTable table({">FROM", ">TO", "PHASE", ">STEPS", "RANKS"});
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs.size() > most_runs && i == most_runs / 2) {
      const std::size_t left_out = runs.size() - most_runs + 1;
      table.add({"...", "...", fmt::format("{} more stretches", left_out)});
      i += left_out;
    }
    const Run& run = runs[i];
    table.add({format_us(run.start_us), format_us(run.end_us), phase_name(report.plan, run.phase),
               digits_text(run.steps), ranks_text(run.ranks)});
  }
  text += table.text();
  std::vector<std::string> sums;
  for (const auto& [phase, sum] : phases) {
    sums.push_back(fmt::format("{} {} in {}", phase_name(report.plan, phase), format_us(sum.first),
                               count_text(sum.second, "step")));
  }
  return fmt::format("{}  by phase: {}\n", text, fmt::join(sums, "; "));
}

std::string links_text(const Planner& planner, const PlanReport& report, std::size_t most) {
  const std::vector<LinkUse> uses = link_uses(planner.topology(), *report.simulation);
  TextTable table({"LINK", "KIND", ">GB/s", ">BYTES", ">BUSY"});
  for (std::size_t i = 0; i < std::min(uses.size(), most); ++i) {
    const LinkUse& use = uses[i];
    table.add({use.name, std::string(to_string(use.link.kind)), fmt::format("{:.4g}", use.link.bandwidth),
               format_bytes(static_cast<double>(use.bytes)), percent_text(use.utilisation)});
  }
  std::string text = table.text();
  if (uses.size() > most) {
    const double next = uses[most].utilisation;
    text += fmt::format("  ... and {}, each busy at most {}\n",
                        count_text(uses.size() - most, "more direction"), percent_text(next));
  }
  return text;
}

/// The number of sequential rounds of one chunk through all phases.
int rounds_of(const Plan& plan) {
  int rounds = 0;
  for (const Phase& phase : phases_of(plan)) rounds += figures_of(plan, phase).rounds;
  return rounds;
}

const RatedPlan* alternative(const PlanReport& report, std::string_view name) {
  const auto found = std::ranges::find(report.alternatives, name, &RatedPlan::name);
  return found == report.alternatives.end() ? nullptr : &*found;
}

std::string advice_text(const Planner& planner, const PlanReport& report) {
  const Plan& plan = report.plan;
  std::vector<std::string> advice;
  const double time = report.simulation ? report.simulation->total_us : plan.predicted_us;
  double highest = 0;
  if (report.simulation) {
    const std::vector<LinkUse> uses = link_uses(planner.topology(), *report.simulation);
    if (!uses.empty()) highest = uses.front().utilisation;
  }
  if (plan.decomposition.ranks() == 1) {
    advice.emplace_back("One rank has nothing to reduce: start more.");
  } else if (highest >= 0.8 || (highest == 0 && plan.bound_us > 0 && time < 1.25 * plan.bound_us)) {
    advice.push_back(fmt::format(
        "The wires set the pace: {} of a bound of {}. Another plan gains at most {}. What helps is "
        "sending less (16-bit gradients, fewer reductions a sample), wider links, or hiding the time "
        "behind backward (build/bin/scaling shows how much that gives).",
        ratio_text(time, plan.bound_us), format_us(plan.bound_us),
        percent_text(std::max(0.0, 1 - plan.bound_us / time))));
  } else if (highest < 0.4 && plan.bytes < (std::uint64_t{8} << 20)) {
    advice.push_back(fmt::format(
        "Latency sets the pace: there are {} one after the other, and no link is busy more than {} "
        "of the time. What helps is reducing more at once (larger buckets).",
        count_text(as_index(rounds_of(plan)), "round"), percent_text(highest)));
  } else {
    advice.push_back(fmt::format(
        "Neither one link nor latency alone sets the pace: {} of the bound of {}. See --simulate for the "
        "critical path, and --candidates for plans that come close.",
        ratio_text(time, plan.bound_us), format_us(plan.bound_us)));
  }
  const RatedPlan* placed = alternative(report, "flat ring, ranks as placed");
  const RatedPlan* by_host = alternative(report, "flat ring, ranks by host");
  if (placed != nullptr && by_host != nullptr &&
      placed->plan.predicted_us > 1.05 * by_host->plan.predicted_us) {
    advice.push_back(fmt::format(
        "A ring in the order of ranks would take {:.1f} times as long as one that follows the links. This "
        "plan has an order of its own: to place the ranks otherwise would not help.",
        placed->plan.predicted_us / by_host->plan.predicted_us));
  }
  if (plan.decomposition.ragged()) {
    advice.push_back(fmt::format(
        "The hosts hold different numbers of ranks ({}). Equal ones would spread the network's load evenly.",
        to_string(plan.decomposition)));
  }
  std::string text = "\nwhat to do\n";
  for (const std::string& paragraph : advice) text += fmt::format("  - {}\n", paragraph);
  return text;
}

}  // namespace

std::string plan_text(const Planner& planner, const PlanReport& report) {
  const Plan& plan = report.plan;
  std::string text =
      fmt::format("{}: {} placed {} on {}; {} bytes\n\n", report.topology_name,
                  count_text(as_index(plan.decomposition.ranks()), "rank"), report.placement_name,
                  count_text(ranks_by_host(planner.topology(), planner.placement()).size(), "host"),
                  digits_text(plan.bytes));
  text += to_text(plan);
  std::vector<std::string> wires;
  for (int d = 0; d < plan.decomposition.dimensions(); ++d) {
    if (plan.decomposition.size(d) == 1) continue;
    wires.push_back(fmt::format("dimension {}, {}", d,
                                wires_of(planner.topology(), planner.placement(), plan, d, report.root)));
  }
  return wires.empty() ? text : fmt::format("{}  wires: {}\n", text, fmt::join(wires, "; "));
}

std::string explanation_text(const Planner& planner, const PlanReport& report) {
  const Plan& plan = report.plan;
  std::string text = "\nwhy this plan\n";
  TextTable table({"COMPARED WITH", "PLAN", ">PREDICTED", ">RATIO", ">SIMULATED"});
  std::optional<double> total;
  if (report.simulation) total = report.simulation->total_us;
  table.add({"this plan", short_name(plan), format_us(plan.predicted_us), "1.00 x", us_or_dash(total)});
  for (const RatedPlan& other : report.alternatives) {
    table.add({other.name, short_name(other.plan), format_us(other.plan.predicted_us),
               ratio_text(other.plan.predicted_us, plan.predicted_us), us_or_dash(other.simulated_us)});
  }
  text += table.text();

  text += "\nwhere the time goes\n";
  if (!report.simulation) {
    text += "  not simulated: " + report.not_simulated + '\n';
  } else if (report.simulation->channels.empty()) {
    text += "  nothing moves\n";
  } else {
    const std::vector<LinkUse> uses = link_uses(planner.topology(), *report.simulation);
    const LinkUse& first = uses.front();
    const auto as_busy = std::ranges::count_if(
        uses, [&](const LinkUse& use) { return use.utilisation > first.utilisation - 0.01; });
    text += fmt::format("  bottleneck: {} ({}, {:.4g} GB/s), busy {} of the time", first.name,
                        to_string(first.link.kind), first.link.bandwidth, percent_text(first.utilisation));
    if (as_busy > 1)
      text += fmt::format("; {} as busy", count_text(as_index(as_busy - 1), "other direction"));
    text += '\n';
  }
  return text + advice_text(planner, report);
}

std::string verdict_text(const topology::Verdict& verdict) {
  if (!verdict.ok) return fmt::format("\nNOT VERIFIED: {}\n", verdict.problem);
  return fmt::format(
      "\nverified: every element ends with each rank's contribution exactly once, in the same order on all\n"
      "ranks; every send has its receive; nothing can deadlock ({}, {} sent)\n",
      count_text(verdict.steps, "step"), count_text(verdict.elements_sent, "element"));
}

std::string simulation_text(const Planner& planner, const PlanReport& report) {
  const Plan& plan = report.plan;
  const Simulation& simulation = *report.simulation;
  std::string text = fmt::format("\nsimulated  {}, {} of predicted", format_us(simulation.total_us),
                                 ratio_text(simulation.total_us, plan.predicted_us));
  if (plan.bound_us > 0)
    text += fmt::format(", {} of the bound", ratio_text(simulation.total_us, plan.bound_us));
  text += fmt::format("; {}", count_text(simulation.transfers, "transfer"));
  text += '\n';
  if (simulation.phases.empty()) return text;
  TextTable table({"PHASE", "WHAT", ">FROM", ">TO", ">SENT BY ALL"});
  for (const topology::SimulatedPhase& phase : simulation.phases) {
    table.add({std::to_string(phase.phase + 1), phase_name(plan, as_index(phase.phase)),
               format_us(phase.start_us), format_us(phase.end_us),
               format_bytes(static_cast<double>(phase.bytes))});
  }
  text += '\n' + table.text();
  if (simulation.channels.empty()) return text;
  text += "\nbusiest links, each direction of a link by itself\n" + links_text(planner, report, most_links);
  return text + critical_path_text(report);
}

std::string candidates_text(const PlanReport& report) {
  std::string text = fmt::format("\ncandidates: {} considered", count_text(report.candidates_in_all, "plan"));
  if (report.candidates.size() < report.candidates_in_all) {
    text += fmt::format(", the first {} (--candidates all: every one)", report.candidates.size());
  }
  text += '\n';
  TextTable table({">", "PLAN", "MODE", ">PREDICTED", ">SIMULATED", "HASH"});
  bool left_out = false;
  for (std::size_t i = 0; i < report.candidates.size(); ++i) {
    const RatedPlan& rated = report.candidates[i];
    left_out = left_out || !rated.simulated_us;
    table.add({std::to_string(i + 1), short_name(rated.plan), std::string(1, letter_of(rated.plan.mode)),
               format_us(rated.plan.predicted_us), us_or_dash(rated.simulated_us),
               fmt::format("{:016x}", hash(rated.plan))});
  }
  text += table.text();
  if (left_out) {
    text +=
        "  -: not simulated, because that would take too long; simulate one with --mode, --chunks and "
        "--simulate\n";
  }
  return text;
}

}  // namespace ddl::tools
