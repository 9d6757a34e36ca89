// What goes into the run's record.

#include <fmt/format.h>

#include "collectives/engine/driver.hpp"

namespace ddl::collectives {

void Driver::note_begun(OperationState& operation) {
  operation.begun = Ticks::now();
  operation.phase_times.start(operation.program());
  if (operations_.empty()) busy_since_ = operation.begun;
}

/// `ended` 0: now. It is no longer among the operations.
void Driver::note_over(OperationState& operation, std::uint64_t ended) {
  if (ended == 0) ended = Ticks::now();
  const Call& call = operation.call;
  RunStatistics& statistics = run_->statistics();
  if (operations_.empty()) statistics.busy(ended - busy_since_);
  if (call.compares) return add_call_event(call, 0, operation.begun, ended, CallFacts::Way::compared);
  const RunStatistics::Program& program = statistics.program(call.program);
  RunStatistics::Run run{operation.element, ended - operation.begun, {}};
  if (program.plan != 0) run.dimension_ticks = operation.phase_times.dimension_ticks(*call.program->names());
  statistics.ran(*call.program, program, run);
  add_call_event(call, program.plan, operation.begun, ended, CallFacts::Way::done);
  if (run_->keeps_events()) add_phase_events(operation, program.plan);
}

void Driver::note_small(const Call& call, std::uint64_t ended) {
  const std::uint64_t called = recorder_.called_at(call.record);
  const std::uint64_t begun = called != 0 ? called : ended;
  RunStatistics& statistics = run_->statistics();
  statistics.busy(ended - begun);
  statistics.waited(ended - begun);
  const RunStatistics::Program& program = statistics.program(call.program);
  statistics.ran(*call.program, program, {size_of(call.type), ended - begun, {}});
  add_call_event(call, program.plan, begun, ended, CallFacts::Way::done);
}

void Driver::note_failed(const OperationState& operation) {
  const std::uint32_t plan = run_->statistics().program(operation.call.program).plan;
  add_call_event(operation.call, plan, operation.begun, Ticks::now(), CallFacts::Way::failed);
}

void Driver::add_call_event(const Call& call, std::uint32_t plan, std::uint64_t begun, std::uint64_t ended,
                            CallFacts::Way way) {
  if (!run_->keeps_events()) return;
  if (call_label_.of != call.called.name) {
    call_label_ = {call.called.name, {run_->name(call.called.name), run_->track("collectives")}};
  }
  CallFacts facts;
  facts.sequence = call.called.sequence;
  facts.count = call.called.count;
  const std::uint64_t called = recorder_.called_at(call.record);
  facts.called = called != 0 && !call.compares ? called : begun;
  facts.plan = plan;
  facts.communicator = call.communicator;
  facts.type = call.called.type;
  facts.op = call.called.op;
  facts.root = call.called.root;
  facts.way = way;
  const Label& label = call_label_.label;
  run_->add({begun, ended, label.name, label.track, Event::Kind::call, false, facts_of(facts)});
}

void Driver::add_phase_events(const OperationState& operation, std::uint32_t plan) {
  const PlanNames* const names = operation.program().names();
  const PhaseTimes& times = operation.phase_times;
  for (std::size_t phase = 0; phase < times.phases(); ++phase) {
    const Label& label = phase_label(names->phases.at(phase));
    for (std::size_t chunk = 0; chunk < times.chunks(); ++chunk) {
      const PhaseTimes::Span& span = times.at(phase, chunk);
      if (span.end == 0) continue;
      PhaseFacts facts;
      facts.sequence = operation.call.called.sequence;
      facts.bytes = span.elements * operation.element;
      facts.plan = plan;
      facts.communicator = operation.call.communicator;
      facts.chunk = static_cast<std::uint16_t>(chunk);
      facts.phase = static_cast<std::uint32_t>(phase);
      run_->add({span.begin, span.end, label.name, label.track, Event::Kind::phase, false, facts_of(facts)});
    }
  }
}

const Driver::Label& Driver::phase_label(std::string_view name) {
  const auto found = phase_labels_.find(name);
  if (found != phase_labels_.end()) return found->second;
  const Label label{run_->name(name), run_->track(name)};
  return phase_labels_.emplace(name, label).first->second;
}

}  // namespace ddl::collectives
