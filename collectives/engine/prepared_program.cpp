#include "collectives/prepared_program.hpp"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "ddl/error.hpp"

namespace ddl::collectives {

using topology::Program;
using topology::Step;
using topology::StepKind;

namespace {

void check(const Program& program, std::size_t count) {
  const std::size_t size = count + program.scratch;
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    const Step& step = program.steps[i];
    // Buffer and scratch memory are two pieces.
    const auto is_in_one_piece = [&](std::size_t begin, std::size_t end) {
      return begin < end && end <= size && (end <= count || begin >= count);
    };
    const bool reads_own = step.kind == StepKind::reduce || step.kind == StepKind::copy;
    if (is_in_one_piece(step.begin, step.end) &&
        (!reads_own || is_in_one_piece(step.source, step.source + step.size())) &&
        (is_local(step.kind) || step.peer >= 0)) {
      continue;
    }
    throw Error(
        ErrorCode::internal,
        fmt::format("step {} cannot be run: found {}, expected a peer and ranges inside a buffer of {} "
                    "or scratch memory of {} elements",
                    i, to_string(step), count, program.scratch));
  }
}

}  // namespace

PreparedProgram::PreparedProgram(Program program, std::size_t count, std::shared_ptr<const PlanNames> names)
    : program_((check(program, count), std::move(program))),
      count_(count),
      names_(std::move(names)),
      dependencies_(program_) {
  const std::size_t steps = program_.steps.size();
  std::map<std::pair<int, bool>, std::uint32_t> index_of;  // by peer and direction
  stream_of_.reserve(steps);
  before_.reserve(steps);
  for (std::uint32_t i = 0; i < steps; ++i) {
    const Step& step = program_.steps[i];
    before_.push_back(dependencies_.number_before(i));
    if (is_local(step.kind)) {
      stream_of_.push_back(no_stream);
      if (before_.back() == 0) first_local_.push_back(i);
      continue;
    }
    const bool sends = step.kind == StepKind::send;
    const auto [entry, is_new] =
        index_of.try_emplace({step.peer, sends}, static_cast<std::uint32_t>(streams_.size()));
    if (is_new) streams_.push_back({step.peer, sends, 0, 0});
    ++streams_[entry->second].end;  // counts, for now
    stream_of_.push_back(entry->second);
  }
  std::uint32_t begin = 0;
  for (Stream& stream : streams_) {
    stream.begin = begin;
    begin += std::exchange(stream.end, begin);
  }
  order_.resize(begin);
  for (std::uint32_t i = 0; i < steps; ++i) {
    if (stream_of_[i] != no_stream) order_[streams_[stream_of_[i]].end++] = i;
  }
}

}  // namespace ddl::collectives
