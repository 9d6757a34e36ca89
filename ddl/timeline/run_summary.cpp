#include "ddl/timeline/run_summary.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ddl/timeline/clocks.hpp"
#include "topology/text.hpp"

namespace ddl {

namespace collectives {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RunStatistics::Shares, busy, waited)
}

namespace {

using collectives::RunStatistics;

constexpr std::size_t most_lines_of_plans = 8;
constexpr double microseconds = 1e6;

std::string kind_between(const topology::Topology& topology, int from, int to) {
  const auto node = [&](int rank) { return topology.devices()[as_index(rank)]; };
  const topology::Link* narrowest = nullptr;
  for (const topology::Channel channel : topology.route(node(from), node(to))) {
    const topology::Link& link = topology.link(topology::link_of(channel));
    if (narrowest == nullptr || link.bandwidth < narrowest->bandwidth) narrowest = &link;
  }
  return std::string(narrowest == nullptr ? "memory" : to_string(narrowest->kind));
}

std::map<std::string, std::uint64_t> by_kind(collectives::CommunicatorImpl& communicator,
                                             const std::vector<std::uint64_t>& received) {
  std::map<std::string, std::uint64_t> result;
  if (std::ranges::all_of(received, [](std::uint64_t bytes) { return bytes == 0; })) return result;
  const auto topology = communicator.plans().topology();
  for (std::size_t rank = 0; rank < received.size(); ++rank) {
    if (received[rank] == 0) continue;
    result[kind_between(*topology, static_cast<int>(rank), communicator.rank())] += received[rank];
  }
  return result;
}

RunFigures figures_of(collectives::CommunicatorImpl& communicator, const collectives::RunRecorder& recorder) {
  const RunStatistics& statistics = recorder.statistics();
  RunFigures result{.gradients = statistics.gradients(),
                    .all = statistics.all(),
                    .received = by_kind(communicator, statistics.received()),
                    .plans = {}};
  for (const collectives::PlanFigures& plan : statistics.plans()) {
    if (plan.calls == 0) continue;
    result.plans.push_back({plan.chosen->text, plan.chosen->hash, plan.calls, plan.chosen->plan.predicted_us,
                            microseconds * plan.seconds / static_cast<double>(plan.calls),
                            microseconds * plan.least});
  }
  return result;
}

/// For each plan, the figures of the rank with the lowest mean, and the lowest time of all ranks.
std::vector<RunFigures::Plan> merged_plans(const std::vector<RunFigures>& ranks) {
  std::map<std::string, RunFigures::Plan> merged;  // by text, because ranks may have used different plans
  for (const RunFigures& rank : ranks) {
    for (const RunFigures::Plan& plan : rank.plans) {
      const auto [found, is_new] = merged.emplace(plan.text, plan);
      RunFigures::Plan& kept = found->second;
      const double least = std::min(kept.least_us, plan.least_us);
      if (!is_new && plan.mean_us < kept.mean_us) kept = plan;
      kept.least_us = least;
    }
  }
  std::vector<RunFigures::Plan> result;
  for (auto& [text, plan] : merged) result.push_back(std::move(plan));
  std::ranges::stable_sort(result, std::greater<>(), [](const RunFigures::Plan& plan) {
    return plan.mean_us * static_cast<double>(plan.calls);
  });
  return result;
}

std::string share_line(const std::vector<RunFigures>& ranks, std::string_view what,
                       RunStatistics::Shares RunFigures::*shares) {
  double hidden = 0;
  double busy = 0;
  std::size_t worst = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const RunStatistics::Shares& own = ranks[i].*shares;
    hidden += own.hidden() * own.busy;
    busy += own.busy;
    if (own.hidden() < (ranks[worst].*shares).hidden()) worst = i;
  }
  if (busy <= 0) return {};
  const auto count = static_cast<double>(ranks.size());
  return fmt::format(
      "run: {:.0f}% of {} of {} was hidden behind compute (a rank's mean; least: {:.0f}%, rank {})",
      100 * hidden / busy, format_us(microseconds * busy / count), what,
      100 * (ranks[worst].*shares).hidden(), worst);
}

std::string received_line(const std::vector<RunFigures>& ranks) {
  std::map<std::string, std::uint64_t> sums;
  for (const RunFigures& rank : ranks) {
    for (const auto& [kind, bytes] : rank.received) sums[kind] += bytes;
  }
  if (sums.empty()) return {};
  std::vector<std::string> parts;
  for (const auto& [kind, bytes] : sums) {
    parts.push_back(fmt::format("{} {}", kind, format_bytes(static_cast<double>(bytes))));
  }
  return fmt::format("run: bytes by link, all ranks together: {}", fmt::join(parts, ", "));
}

}  // namespace

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RunFigures::Plan, text, hash, calls, predicted_us, mean_us, least_us)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RunFigures, gradients, all, received, plans)

std::string RunFigures::json() const {
  return nlohmann::json(*this).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

RunFigures RunFigures::parse(const std::string& json) { return nlohmann::json::parse(json); }

std::vector<std::string> summary_lines(const std::vector<RunFigures>& ranks) {
  std::vector<std::string> lines;
  const auto add = [&](std::string line) {
    if (!line.empty()) lines.push_back(std::move(line));
  };
  add(share_line(ranks, "reducing gradients", &RunFigures::gradients));
  add(share_line(ranks, "all collectives", &RunFigures::all));
  add(received_line(ranks));
  const std::vector<RunFigures::Plan> plans = merged_plans(ranks);
  for (std::size_t i = 0; i < std::min(plans.size(), most_lines_of_plans); ++i) {
    const RunFigures::Plan& plan = plans[i];
    const std::string against = plan.predicted_us > 0 ? fmt::format("{:.3g} times what was predicted",
                                                                    plan.least_us / plan.predicted_us)
                                                      : "not predicted";
    add(fmt::format(
        "run: {} call{} took {} at least, {}, and {} on average with waits for late ranks: {} (hash "
        "{:016x})",
        plan.calls, plan.calls == 1 ? "" : "s", format_us(plan.least_us), against, format_us(plan.mean_us),
        plan.text, plan.hash));
  }
  if (plans.size() > most_lines_of_plans) {
    add(fmt::format("run: and {} plans in which less time went", plans.size() - most_lines_of_plans));
  }
  return lines;
}

void summarise(collectives::CommunicatorImpl& communicator, const collectives::RunRecorder& recorder,
               Log& log) {
  std::vector<std::string> texts(as_index(communicator.size()));
  gather_texts(communicator, figures_of(communicator, recorder).json(),
               [&](int rank, std::string_view piece) { texts[as_index(rank)] += piece; });
  if (communicator.rank() != 0) return;
  std::vector<RunFigures> ranks;
  for (const std::string& text : texts) ranks.push_back(RunFigures::parse(text));
  for (const std::string& line : summary_lines(ranks)) log.info(line);
}

}  // namespace ddl
