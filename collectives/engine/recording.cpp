// What goes into the run's record.

#include "collectives/engine/driver.hpp"

namespace ddl::collectives {

void Driver::note_begun(OperationState& operation) {
  settle_record();
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
  if (call.compares) {
    return events_.add(call, 0, {operation.begun, ended, CallFacts::Way::compared});
  }
  const RunStatistics::Program& program = statistics.program(call.program);
  const std::uint64_t ticks = ended - operation.begun;
  RunStatistics::Run run{.element_bytes = operation.element, .ticks = ticks, .least = ticks};
  if (program.plan != 0) run.dimension_ticks = operation.phase_times.dimension_ticks(*call.program->names());
  statistics.ran(*call.program, program, run);
  events_.add(call, program.plan, {operation.begun, ended});
  if (run_->keeps_events()) add_phase_events(operation, program.plan);
}

void Driver::note_failed(const OperationState& operation) {
  const std::uint32_t plan = run_->statistics().program(operation.call.program).plan;
  events_.add(operation.call, plan, {operation.begun, Ticks::now(), CallFacts::Way::failed});
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
      run_->add({span.begin, span.end, label.name, label.track, Event::Kind::phase, false, facts});
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
