#include "collectives/engine/call_events.hpp"

#include <algorithm>
#include <span>

namespace ddl::collectives {

void CallEvents::add(const Call& call, std::uint32_t plan, const Course& course) {
  if (!run_->keeps_events()) return;
  const std::uint64_t called = call.compares ? 0 : calls_.called_at(call.record);
  add_event(call, plan, called != 0 ? called : course.begun, course);
}

void CallEvents::begin_small(const Call& call, const Course& course) {
  settle();
  first_ = call;
  first_course_ = course;
  const std::uint64_t ticks = course.ended - course.begun;
  small_ = {.next = call.called.sequence + 1,
            .program = call.program.get(),
            .name = call.called.name,
            .fingerprint = call.fingerprint,
            .communicator = call.communicator,
            .type = call.type,
            .op = call.op,
            .ended = course.ended,
            .ticks = ticks,
            .least = ticks,
            .calls = 1};
  run_->expect(1 + RepeatFacts::most_in_a_row);
}

void CallEvents::put_down_small() {
  RunStatistics& statistics = run_->statistics();
  const RunStatistics::Program& program = statistics.program(first_.program);
  statistics.alone(small_.ticks);
  statistics.ran(*first_.program, program,
                 {.element_bytes = size_of(first_.type),
                  .calls = small_.calls,
                  .ticks = small_.ticks,
                  .least = small_.least});
  if (run_->keeps_events()) add_small_events(program.plan);
  small_.calls = 0;
  small_.program = nullptr;  // the next one begins anew
}

void CallEvents::add_small_events(std::uint32_t plan) {
  add_event(first_, plan, first_course_.begun, first_course_);
  const std::span<const RepeatFacts::Times> repeats(repeats_.data(), small_.calls - 1);
  for (std::size_t i = 0; i < repeats.size(); i += RepeatFacts::most) {
    RepeatFacts facts;
    const auto part = repeats.subspan(i, std::min(RepeatFacts::most, repeats.size() - i));
    facts.calls = static_cast<std::uint32_t>(part.size());
    std::ranges::copy(part, facts.times.begin());
    run_->add({.kind = Event::Kind::repeats, .facts = facts});
  }
}

void CallEvents::add_event(const Call& call, std::uint32_t plan, std::uint64_t called, const Course& course) {
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
  run_->add({course.begun, course.ended, label_, track_, Event::Kind::call, false, facts});
}

}  // namespace ddl::collectives
