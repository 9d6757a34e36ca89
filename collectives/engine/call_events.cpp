#include "collectives/engine/call_events.hpp"

#include <algorithm>
#include <span>

namespace ddl::collectives {

void CallEvents::add(const Call& call, std::uint32_t plan, const Course& course) {
  if (!run_->keeps_events()) return;
  const std::uint64_t called = call.compares ? 0 : calls_.called_at(call.record);
  run_->add(event_of(call, plan, called != 0 ? called : course.begun, course));
}

void CallEvents::begin_small(const Call& call, std::uint64_t called, std::uint64_t ended) {
  settle();
  first_ = call;
  first_course_ = {.begun = called, .ended = ended};
  small_ = {.next = call.called.sequence + 1,
            .program = call.program.get(),
            .name = call.called.name,
            .fingerprint = call.fingerprint,
            .communicator = call.communicator,
            .type = call.type,
            .op = call.op,
            .ended = ended,
            .calls = 1};
}

void CallEvents::put_down_small() {
  RunStatistics& statistics = run_->statistics();
  const RunStatistics::Program& program = statistics.program(first_.program);
  const std::span<const RepeatedCall> repeats(repeats_.data(), small_.calls - 1);
  std::uint64_t ticks = first_course_.ended - first_course_.begun;
  std::uint64_t least = ticks;
  for (const RepeatedCall& repeat : repeats) {
    ticks += repeat.length;
    least = std::min<std::uint64_t>(least, repeat.length);
  }
  statistics.alone(ticks);
  statistics.ran(
      *first_.program, program,
      {.element_bytes = size_of(first_.type), .calls = small_.calls, .ticks = ticks, .least = least});
  if (run_->keeps_events()) {
    run_->add(event_of(first_, program.plan, first_course_.begun, first_course_), repeats);
  }
  small_.calls = 0;
  small_.program = nullptr;  // the next one begins anew
}

Event CallEvents::event_of(const Call& call, std::uint32_t plan, std::uint64_t called, const Course& course) {
  if (labelled_ != call.called.name) {
    labelled_ = call.called.name;
    label_ = run_->name(labelled_);
    track_ = run_->track("collectives");
  }
  CallFacts facts;
  facts.sequence = call.called.sequence;
  facts.count = call.called.count;
  facts.called = called;
  facts.plan = plan;
  facts.communicator = call.communicator;
  facts.type = call.called.type;
  facts.op = call.called.op;
  facts.root = call.called.root;
  facts.way = course.way;
  return {course.begun, course.ended, label_, track_, Event::Kind::call, false, facts};
}

}  // namespace ddl::collectives
