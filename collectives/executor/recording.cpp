#include <algorithm>

#include "collectives/executor/driver.hpp"
#include "collectives/executor/operation_state.hpp"

namespace ddl::collectives {

void Driver::note_begun(OperationState& operation) {
  operation.begun = Ticks::now();
  operation.phase_times.start(operation.program());
  if (operations_.empty()) busy_since_ = operation.begun;
}

/// The operation is not in `operations_` any more. `ended` 0: now.
void Driver::note_over(OperationState& operation, std::uint64_t ended) {
  if (ended == 0) ended = Ticks::now();
  const Call& call = operation.call();
  RunStatistics& statistics = run_->statistics();
  if (operations_.empty()) statistics.busy(ended - busy_since_);
  if (call.compares) return add_event(call, 0, operation.begun, ended, CallFacts::Way::compared);
  const std::uint32_t plan = statistics.plan_number(*call.program);
  const std::uint64_t ticks = ended - operation.begun;
  RunStatistics::Run run{.element_bytes = operation.element, .ticks = ticks};
  if (plan != 0) run.dimension_ticks = operation.phase_times.dimension_ticks(*call.program->plan());
  statistics.ran(*call.program, plan, run);
  add_event(call, plan, operation.begun, ended);
  if (run_->keeps_events()) add_phase_events(operation, plan);
}

void Driver::note_small(const FlightRecorder::Times& times) {
  const Call& call = small_->call();
  RunStatistics& statistics = run_->statistics();
  const std::uint32_t plan = statistics.plan_number(*call.program);
  const std::uint64_t ticks = times.ended - times.called;
  statistics.alone(ticks);
  statistics.ran(*call.program, plan, {.element_bytes = small_->element, .ticks = ticks});
  add_event(call, plan, times.called, times.ended);
}

void Driver::note_failed(const OperationState& operation) {
  const std::uint32_t plan = run_->statistics().plan_number(operation.program());
  add_event(operation.call(), plan, operation.begun, Ticks::now(), CallFacts::Way::failed);
}

void Driver::add_phase_events(const OperationState& operation, std::uint32_t plan) {
  const std::shared_ptr<const ChosenPlan>& chosen = operation.program().plan();
  const PhaseTimes& times = operation.phase_times;
  for (std::size_t phase = 0; phase < times.phases(); ++phase) {
    const std::uint32_t name = run_->name(chosen->phases.at(phase));
    const std::uint16_t track = run_->track(chosen->phases.at(phase));
    for (std::size_t chunk = 0; chunk < times.chunks(); ++chunk) {
      const PhaseTimes::Span& span = times.at(phase, chunk);
      if (span.end == 0) continue;
      PhaseFacts facts;
      facts.sequence = operation.call().id.sequence;
      facts.bytes = span.elements * operation.element;
      facts.plan = plan;
      facts.communicator = operation.call().communicator;
      facts.chunk = static_cast<std::uint16_t>(chunk);
      facts.phase = static_cast<std::uint32_t>(phase);
      run_->add({span.begin, span.end, name, track, Event::Kind::phase, false, facts});
    }
  }
}

/// `begun` and `ended`: in Ticks.
void Driver::add_event(const Call& call, std::uint32_t plan, std::uint64_t begun, std::uint64_t ended,
                       CallFacts::Way way) {
  if (!run_->keeps_events()) return;
  if (labelled_ != call.id.name) {
    labelled_ = call.id.name;
    label_ = run_->name(labelled_.view());
    track_ = run_->track("collectives");
  }
  const std::uint64_t called = call.compares ? 0 : recorder_.called_at(call.record);
  CallFacts facts;
  facts.sequence = call.id.sequence;
  facts.count = call.id.count;
  facts.called = called != 0 ? called : begun;
  facts.plan = plan;
  facts.communicator = call.communicator;
  facts.type = call.id.type;
  facts.op = call.id.op;
  facts.root = call.id.root;
  facts.way = way;
  run_->add({begun, ended, label_, track_, Event::Kind::call, false, facts});
}

void PhaseTimes::start(const PreparedProgram& program) {
  spans_.clear();
  chunks_ = 1;
  if (!program.plan() || program.plan()->dimension_of.empty()) return;
  std::size_t phases = 0;
  for (const topology::Step& step : program.steps()) {
    chunks_ = std::max(chunks_, std::size_t{step.chunk} + 1);
    phases = std::max(phases, std::size_t{step.phase} + 1);
  }
  spans_.resize(phases * chunks_);
  for (const topology::Step& step : program.steps()) {
    if (step.joined) continue;
    Span& span = span_of(step);
    ++span.left;
    span.elements += step.size();
  }
}

std::span<const std::uint64_t> PhaseTimes::dimension_ticks(const ChosenPlan& plan) {
  ticks_.assign(spans_.empty() ? 0 : plan.dimensions.size(), 0);
  for (std::size_t dimension = 0; dimension < ticks_.size(); ++dimension) {
    intervals_.clear();
    for (std::size_t i = 0; i < spans_.size(); ++i) {
      const std::size_t phase = i / chunks_;
      const bool counts = phase < plan.dimension_of.size() &&
                          plan.dimension_of[phase] == static_cast<int>(dimension) && spans_[i].end != 0;
      if (counts) intervals_.emplace_back(spans_[i].begin, spans_[i].end);
    }
    std::ranges::sort(intervals_);
    std::uint64_t until = 0;
    for (const auto& [begin, end] : intervals_) {
      if (end > until) ticks_[dimension] += end - std::max(begin, until);
      until = std::max(until, end);
    }
  }
  return ticks_;
}

}  // namespace ddl::collectives
