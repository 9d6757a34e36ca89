#include "collectives/timeline/run_statistics.hpp"

#include <algorithm>

namespace ddl::collectives {
namespace {

constexpr std::size_t most_plans = 1024;  // calls with further plans count as calls without a plan

}  // namespace

double RunStatistics::Shares::hidden() const noexcept {
  return busy <= 0 ? 0 : std::clamp(1 - waited / busy, 0.0, 1.0);
}

std::uint32_t RunStatistics::plan_number(const PreparedProgram& program) {
  const std::shared_ptr<const ChosenPlan>& chosen = program.plan();
  if (!chosen || chosen->dimensions.empty()) return 0;
  if (last_plan_.first == chosen.get()) return last_plan_.second;
  if (const auto found = numbers_.find(chosen.get()); found != numbers_.end()) {
    last_plan_ = *found;
    return found->second;
  }
  const std::lock_guard lock(mutex_);
  if (plans_.size() == most_plans) return 0;
  plans_.emplace_back(chosen);
  const auto number = static_cast<std::uint32_t>(plans_.size());
  numbers_.emplace(chosen.get(), number);
  return number;
}

void RunStatistics::ran(const PreparedProgram& program, std::uint32_t number, const Run& run) {
  for (const auto& [rank, elements] : program.elements_from()) {
    received_[as_index(rank)].add(elements * run.element_bytes);
  }
  if (number == 0) return;
  Plan& plan = plans_[number - 1];  // elements of a deque do not move
  if (plan.calls.get() == 0 || run.ticks < plan.least.get()) plan.least.set(run.ticks);
  plan.calls.add(1);
  plan.bytes.add(program.count() * run.element_bytes);
  plan.ticks.add(run.ticks);
  if (run.dimension_ticks.empty()) return plan.dimensions.front().add(run.ticks);
  const std::size_t dimensions = std::min(plan.dimensions.size(), run.dimension_ticks.size());
  for (std::size_t i = 0; i < dimensions; ++i) plan.dimensions[i].add(run.dimension_ticks[i]);
}

void RunStatistics::gradient_step(double busy_seconds, double waited_seconds) {
  const std::lock_guard lock(mutex_);
  gradients_.busy += busy_seconds;
  gradients_.waited += std::min(busy_seconds, waited_seconds);
}

RunStatistics::Shares RunStatistics::all() const {
  const std::uint64_t alone = alone_.get();
  return {seconds(busy_.get() + alone), seconds(waited_.load(std::memory_order_relaxed) + alone)};
}

RunStatistics::Shares RunStatistics::gradients() const {
  const std::lock_guard lock(mutex_);
  return gradients_;
}

std::vector<PlanFigures> RunStatistics::plans() const {
  const std::lock_guard lock(mutex_);
  std::vector<PlanFigures> result;
  for (const Plan& plan : plans_) {
    PlanFigures figures{
        plan.chosen, plan.calls.get(), plan.bytes.get(), seconds(plan.ticks.get()), seconds(plan.least.get()),
        {}};
    for (const Tally& tally : plan.dimensions) figures.dimension_seconds.push_back(seconds(tally.get()));
    result.push_back(std::move(figures));
  }
  return result;
}

std::vector<std::uint64_t> RunStatistics::received() const {
  std::vector<std::uint64_t> bytes;
  for (const Tally& tally : received_) bytes.push_back(tally.get());
  return bytes;
}

}  // namespace ddl::collectives
