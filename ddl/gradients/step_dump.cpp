#include "ddl/gradients/step_dump.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "ddl/context/context_state.hpp"
#include "ddl/timeline.hpp"
#include "topology/text.hpp"

namespace ddl {

MostDelayed most_delayed(std::span<const Arrivals> ranks) {
  if (ranks.size() < 2) return {};
  const std::size_t collectives = ranks.front().size();
  std::vector<MostDelayed> delays(ranks.size());  // holds sums until the averages are made
  for (std::size_t i = 0; i < collectives; ++i) {
    std::size_t last = 0;
    for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
      if (ranks[rank][i] > ranks[last][i]) last = rank;
    }
    std::int64_t before = std::numeric_limits<std::int64_t>::min();
    double waited = 0;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (rank == last) continue;
      before = std::max(before, ranks[rank][i]);
      waited += static_cast<double>(ranks[last][i] - ranks[rank][i]);
    }
    if (before == ranks[last][i]) continue;
    ++delays[last].last_in;
    delays[last].behind += static_cast<double>(ranks[last][i] - before);
    delays[last].waited += waited;
  }
  const auto most = std::ranges::max_element(delays, {}, &MostDelayed::behind);
  most->rank = static_cast<int>(most - delays.begin());
  most->collectives = collectives;
  const auto count = static_cast<double>(std::max<std::size_t>(most->last_in, 1));
  most->behind /= count;
  most->waited /= count;
  return *most;
}

namespace {

using collectives::PlanFigures;

constexpr std::size_t most_plans = 6;
/// The number of arrivals that each rank contributes to a dump.
constexpr std::size_t most_arrivals = 255;

std::string delay_line(const std::string& head, const MostDelayed& delayed, const std::string& host,
                       std::int64_t clock_error) {
  if (delayed.collectives == 0) return head + ": no reductions whose arrivals could be compared";
  if (delayed.last_in == 0) {
    return fmt::format("{}: no rank was late in {} reductions", head, delayed.collectives);
  }
  const std::string exact = clock_error == 0 ? ""
                                             : fmt::format(" (clocks compared to {})",
                                                           format_us(static_cast<double>(clock_error) / 1e3));
  return fmt::format(
      "{}: most delayed rank {} ({}): last in {} of {} reductions, {} behind the one before it on "
      "average; the others together waited {} each time{}",
      head, delayed.rank, host, delayed.last_in, delayed.collectives, format_us(delayed.behind / 1e3),
      format_us(delayed.waited / 1e3), exact);
}

std::string plan_line(const std::string& head, std::uint64_t steps, const PlanFigures& plan) {
  const auto each_us = [&](double seconds, std::uint64_t count) {
    return format_us(1e6 * seconds / static_cast<double>(std::max<std::uint64_t>(count, 1)));
  };
  std::string text = fmt::format("{}: {} call{}, {} each:", head, plan.calls, plan.calls == 1 ? "" : "s",
                                 each_us(plan.seconds, plan.calls));
  for (std::size_t i = 0; i < plan.dimension_seconds.size(); ++i) {
    text += fmt::format("{} dimension {} ({}) {} a step", i == 0 ? "" : ",", i, plan.chosen->dimensions.at(i),
                        each_us(plan.dimension_seconds[i], steps));
  }
  return text + fmt::format("; {}", plan.chosen->text);
}

}  // namespace

std::vector<PlanFigures> since(const std::vector<PlanFigures>& before, std::vector<PlanFigures> now) {
  for (std::size_t i = 0; i < std::min(before.size(), now.size()); ++i) {
    now[i].calls -= before[i].calls;
    now[i].bytes -= before[i].bytes;
    now[i].seconds = std::max(now[i].seconds - before[i].seconds, 0.0);
    for (std::size_t d = 0; d < now[i].dimension_seconds.size(); ++d) {
      now[i].dimension_seconds[d] =
          std::max(now[i].dimension_seconds[d] - before[i].dimension_seconds[d], 0.0);
    }
  }
  std::erase_if(now, [](const PlanFigures& plan) { return plan.calls == 0; });
  std::ranges::stable_sort(now, std::greater<>(), &PlanFigures::seconds);
  return now;
}

std::vector<std::string> dump_lines(std::uint64_t step, std::uint64_t steps, const MostDelayed& delayed,
                                    const std::string& host, std::int64_t clock_error,
                                    const std::vector<PlanFigures>& plans) {
  const std::string head = fmt::format("step {}", step);
  std::vector<std::string> lines = {delay_line(head, delayed, host, clock_error)};
  const std::size_t shown = std::min(plans.size(), most_plans);
  for (std::size_t i = 0; i < shown; ++i) lines.push_back(plan_line(head, steps, plans[i]));
  if (shown < plans.size()) {
    lines.push_back(fmt::format("{}: and {} plans in which less time went", head, plans.size() - shown));
  }
  return lines;
}

StepDump::StepDump(const Context& context, RunObserver& observer, int every)
    : context_(context),
      observer_(observer),
      every_(static_cast<std::uint64_t>(every)),
      before_(observer.recorder()->statistics().plans()) {
  observer_.note_reducer();
}

void StepDump::arrived() {
  ++arrived_;
  arrivals_.push_back(Timeline::now_ns());
  if (arrivals_.size() > most_arrivals) arrivals_.pop_front();
}

void StepDump::step_over() {
  if (++steps_ % every_ == 0) dump();
}

void StepDump::dump() {
  const std::vector<PlanFigures> plans = since(before_, observer_.recorder()->statistics().plans());
  Communicator& all = context_.communicator();
  const auto ranks = static_cast<std::size_t>(all.size());
  if (ranks > 1) observer_.compare_clocks(communicator_of(context_));
  // Numbers of arrivals differ between ranks if a step has ended early; they cannot be compared then.
  constexpr std::size_t each = most_arrivals + 2;
  std::vector<std::int64_t> own(each), everyones(each * ranks);
  own[0] = static_cast<std::int64_t>(arrived_);
  own[1] = observer_.clock().error();
  for (std::size_t i = 0; i < arrivals_.size(); ++i) own[i + 2] = observer_.clock().job_time(arrivals_[i]);
  all.all_gather(own.data(), everyones.data(), each, DataType::i64);
  std::vector<Arrivals> arrivals(ranks);
  std::int64_t clock_error = 0;
  bool alike = true;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto begin = everyones.begin() + static_cast<std::ptrdiff_t>(rank * each);
    alike = alike && begin[0] == everyones[0];
    clock_error = std::max(clock_error, begin[1]);
    arrivals[rank].assign(begin + 2, begin + 2 + static_cast<std::ptrdiff_t>(arrivals_.size()));
  }
  const MostDelayed delayed = alike ? most_delayed(arrivals) : MostDelayed{};
  for (const std::string& line :
       dump_lines(steps_, every_, delayed, observer_.host_of(delayed.rank), clock_error, plans)) {
    context_.log().notice(line);
  }
  arrived_ = 0;
  arrivals_.clear();
  before_ = observer_.recorder()->statistics().plans();
}

}  // namespace ddl
