#include "ddl/topology/verifier.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ddl/topology/plan.hpp"
#include "topology/program/streams.hpp"
#include "topology/verifier/verifier_expressions.hpp"

namespace ddl::topology {
namespace {

std::string check_shape(const Schedule& schedule) {
  if (schedule.collective > Collective::reduce) {  // the last enumerator
    return fmt::format("found collective number {}, expected one of Collective",
                       static_cast<int>(schedule.collective));
  }
  if (schedule.ranks.empty()) return "found no ranks, expected at least 1";
  if (schedule.ranks.size() > INT32_MAX) {
    return fmt::format("found {} ranks, expected at most {}", schedule.ranks.size(), INT32_MAX);
  }
  const int ranks = static_cast<int>(schedule.ranks.size());
  if (has_root(schedule.collective) && (schedule.root < 0 || schedule.root >= ranks)) {
    return fmt::format("found root {}, expected 0 to {}", schedule.root, ranks - 1);
  }
  if (has_pieces(schedule.collective) && schedule.count % schedule.ranks.size() != 0) {
    return fmt::format("found {} elements, expected a multiple of {}: each rank has a piece of one length",
                       schedule.count, schedule.ranks.size());
  }
  if (schedule.collective == Collective::barrier && schedule.count == 0 && ranks > 1) {
    return "found a barrier over 0 elements, expected 1: ranks hear of each other through it";
  }
  std::uint64_t steps = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const Program& program = schedule.ranks[as_index(rank)];
    if (program.scratch > SIZE_MAX - schedule.count) {
      return fmt::format("rank {}: found {} elements of scratch, expected at most {} besides a buffer of {}",
                         rank, program.scratch, SIZE_MAX - schedule.count, schedule.count);
    }
    steps += program.steps.size();
  }
  if (steps >= no_step) return fmt::format("found {} steps, expected fewer than {}", steps, no_step);
  return {};
}

std::string check_step(const Step& step, int rank, int ranks, std::size_t count, std::size_t scratch) {
  if (step.kind > StepKind::round) {  // the last enumerator
    return fmt::format("found kind number {}, expected one of StepKind", static_cast<int>(step.kind));
  }
  if (step.begin >= step.end) {
    return fmt::format("found begin {} and end {}, expected begin below end", step.begin, step.end);
  }
  const std::size_t size = count + scratch;
  if (step.end > size) {
    return fmt::format("found addresses up to {}, expected at most {} ({} of the buffer, {} of scratch)",
                       step.end, size, count, scratch);
  }
  const auto crosses = [count](std::size_t begin, std::size_t end) { return begin < count && end > count; };
  constexpr const char* across =
      "found [{}, {}) across the end of the buffer at {}, expected it in the buffer or in the scratch "
      "memory: "
      "they need not lie side by side";
  if (crosses(step.begin, step.end)) return fmt::format(across, step.begin, step.end, count);
  if (step.narrow && is_local(step.kind))
    return "found a narrow local step, expected only messages to be narrow";
  if (!is_local(step.kind)) {
    if (step.peer >= 0 && step.peer < ranks && step.peer != rank) return {};
    return fmt::format("found peer {}, expected another rank of 0 to {}", step.peer, ranks - 1);
  }
  if (!has_source(step.kind)) return {};
  if (step.source > size - step.size()) {
    return fmt::format(
        "found a source of {} addresses from {} on, expected them below {} ({} of the buffer, "
        "{} of scratch)",
        step.size(), step.source, size, count, scratch);
  }
  const std::size_t source_end = step.source + step.size();
  if (crosses(step.source, source_end)) return fmt::format(across, step.source, source_end, count);
  if (step.source < step.end && step.begin < step.source + step.size()) {
    return "found a source that overlaps the range, expected two that are apart";
  }
  return {};
}

/// Checks the wire's type, and that every rounding has a residual range of its own.
std::string check_wire(const Program& program, int rank) {
  std::vector<std::pair<std::size_t, std::size_t>> kept;
  for (const Step& step : program.steps) {
    if (!step.narrow && step.kind != StepKind::round) continue;
    if (program.wire != DataType::bf16 && program.wire != DataType::f16) {
      return fmt::format("rank {}: found the wire {}, expected bf16 or f16: it has a {}", rank,
                         ddl::to_string(program.wire), to_string(step));
    }
    if (step.kind != StepKind::round) continue;
    if (step.source > program.residual || step.size() > program.residual - step.source) {
      return fmt::format("rank {}: found a {}, expected its residual within {} elements", rank,
                         to_string(step), program.residual);
    }
    kept.emplace_back(step.source, step.source + step.size());
  }
  std::ranges::sort(kept);
  for (std::size_t i = 1; i < kept.size(); ++i) {
    if (kept[i].first >= kept[i - 1].second) continue;
    return fmt::format("rank {}: found residual {} in two roundings, expected it in one", rank,
                       kept[i].first);
  }
  return {};
}

/// Checks a joined step and the step before it; see `Program`.
std::string check_joined(const Step& before, const Step& step) {
  if (step.kind != StepKind::receive_reduce && step.kind != StepKind::reduce &&
      step.kind != StepKind::finish) {
    return fmt::format("found that a {} is joined, expected a receive_reduce, reduce or finish",
                       to_string(step.kind));
  }
  const bool ends =
      before.kind == StepKind::send || before.kind == StepKind::finish || before.kind == StepKind::round;
  if (ends || before.begin != step.begin || before.end != step.end) {
    return fmt::format(
        "found that it is joined to a {}, expected a step before it that reduces into the same range",
        to_string(before));
  }
  return {};
}

/// Checks a run that begins at `first`. It may take from a peer only once: its messages start together, and
/// those of one stream cannot.
std::string check_run(const Program& program, std::size_t first) {
  std::vector<std::int32_t> peers;
  const std::size_t end = program.end_of_run(first);
  if (end == first + 1) return {};
  for (std::size_t i = first; i < end; ++i) {
    if (is_receive(program.steps[i].kind)) peers.push_back(program.steps[i].peer);
  }
  std::ranges::sort(peers);
  const auto twice = std::ranges::adjacent_find(peers);
  if (twice == peers.end()) return {};
  return fmt::format("found that its run takes from rank {} twice, expected once", *twice);
}

std::string check_steps(const StepNumbers& steps) {
  const Schedule& schedule = steps.schedule();
  const int ranks = static_cast<int>(schedule.ranks.size());
  for (StepId id = 0; id < steps.size(); ++id) {
    const int rank = steps.rank(id);
    const Program& program = schedule.ranks[as_index(rank)];
    const Step& step = steps[id];
    std::string problem = check_step(step, rank, ranks, schedule.count, program.scratch);
    if (problem.empty() && step.joined) {
      problem = steps.index(id) == 0 ? "found that the first step is joined, expected one before it"
                                     : check_joined(steps[id - 1], step);
    } else if (problem.empty()) {
      problem = check_run(program, steps.index(id));
    }
    if (!problem.empty()) return steps.name(id) + ": " + problem;
  }
  return {};
}

std::string find_problem(const Schedule& schedule, Verdict& verdict) {
  if (std::string problem = check_shape(schedule); !problem.empty()) return problem;
  const StepNumbers steps(schedule);
  verdict.steps = steps.size();
  if (std::string problem = check_steps(steps); !problem.empty()) return problem;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    const Program& program = schedule.ranks[rank];
    if (std::string problem = check_wire(program, static_cast<int>(rank)); !problem.empty()) return problem;
    for (const Step& step : program.steps) {
      if (step.kind == StepKind::send) verdict.elements_sent += step.size();
    }
  }
  const Streams streams(steps);
  if (!streams.problem().empty()) return streams.problem();
  const verification::Order order = verification::order_steps(steps, streams);
  if (!order.problem.empty()) return order.problem;
  return verification::check_content(steps, streams, order.steps);
}

}  // namespace

Verdict verify(const Schedule& schedule) {
  Verdict verdict;
  verdict.problem = find_problem(schedule, verdict);
  verdict.ok = verdict.problem.empty();
  return verdict;
}

}  // namespace ddl::topology
