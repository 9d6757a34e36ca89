#include "collectives/executor.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "collectives/reduce.hpp"
#include "ddl/error.hpp"

namespace ddl::collectives {

using topology::Step;
using topology::StepKind;

namespace {

constexpr int yields_before_sleep = 16;
constexpr std::size_t most_peers_named = 8;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

Executor::Executor(Transport& transport, const topology::RankMap& map, int rank, int spins)
    : transport_(transport), map_(map), rank_(rank), spins_(spins) {}

void Executor::run(const PreparedProgram& program, const Operation& operation, Clock::time_point deadline) {
  operation_ = operation;
  element_ = size_of(operation.type);
  started_ = Clock::now();
  start(program);
  run_local_steps();
  for (int idle = 0; unfinished_ != 0;) {
    if (sweep()) {
      idle = 0;
    } else if (++idle <= spins_) {
      pause_briefly();
    } else if (idle <= spins_ + yields_before_sleep) {
      sched_yield();
    } else {
      sleep(deadline);
    }
  }
  flush(deadline);
}

void Executor::start(const PreparedProgram& program) {
  program_ = &program;
  const std::size_t scratch = program.scratch() * element_;
  if (scratch > scratch_bytes_) {
    scratch_bytes_ = 0;
    scratch_.reset();
    scratch_ = std::make_unique_for_overwrite<std::byte[]>(scratch);
    scratch_bytes_ = scratch;
  }
  const auto streams = static_cast<std::uint32_t>(program.streams().size());
  unfinished_ = program.steps().size();
  before_.assign(program.before().begin(), program.before().end());
  local_.reserve(unfinished_);
  local_.assign(program.first_local_steps().begin(), program.first_local_steps().end());  // already a heap
  progress_.assign(streams, {});
  active_.clear();
  active_.reserve(streams);
  gone_.reserve(streams);  // not when it sleeps for the first time, long after warm-up
  for (std::uint32_t i = 0; i < streams; ++i) {
    progress_[i].position = program.streams()[i].begin;
    if (may_progress(i)) active_.push_back(i);
  }
}

const Step& Executor::current(std::uint32_t stream) const {
  return program_->steps()[program_->order()[progress_[stream].position]];
}

/// Whether it has a step left whose conflicts are over.
bool Executor::may_progress(std::uint32_t stream) const {
  const std::uint32_t position = progress_[stream].position;
  return position != program_->streams()[stream].end && before_[program_->order()[position]] == 0;
}

bool Executor::sweep() {
  bool moved = false;
  for (std::size_t i = 0; i < active_.size();) {
    const std::uint32_t stream = active_[i];
    if (!advance(stream)) {
      ++i;
      continue;
    }
    moved = true;
    Progress& progress = progress_[stream];
    const std::uint32_t step = program_->order()[progress.position];
    if (progress.done != bytes_of(program_->steps()[step])) {
      ++i;
      continue;
    }
    ++progress.position;
    progress.done = 0;
    // It goes to the end of the line if its next step may start, now or by what this one's end lets run.
    active_[i] = active_.back();
    active_.pop_back();
    if (may_progress(stream)) active_.push_back(stream);
    complete(step);
    run_local_steps();
  }
  return moved;
}

void Executor::complete(std::uint32_t step) {
  --unfinished_;
  for (const std::uint32_t later : program_->after(step)) {
    if (--before_[later] != 0) continue;
    const std::uint32_t stream = program_->stream_of(later);
    if (stream == PreparedProgram::no_stream) {
      local_.push_back(later);
      std::push_heap(local_.begin(), local_.end(), std::greater<>());
    } else if (program_->order()[progress_[stream].position] == later) {
      active_.push_back(stream);
    }
  }
}

void Executor::run_local_steps() {
  while (!local_.empty()) {
    std::pop_heap(local_.begin(), local_.end(), std::greater<>());
    const std::uint32_t step = local_.back();
    local_.pop_back();
    run_local(program_->steps()[step]);
    complete(step);
  }
}

void Executor::run_local(const Step& step) {
  switch (step.kind) {
    case StepKind::reduce:
      return reduce(operation_.type, operation_.op, at(step.begin), at(step.source), step.size());
    case StepKind::copy:
      std::memmove(at(step.begin), at(step.source), bytes_of(step));
      return;
    case StepKind::finish:
      return finish(operation_.type, operation_.op, at(step.begin), step.size(), map_.ranks());
    case StepKind::send:
    case StepKind::receive:
    case StepKind::receive_reduce:
      break;
  }
}

std::byte* Executor::at(std::size_t element) const {
  return element < operation_.count ? operation_.data + element * element_
                                    : scratch_.get() + (element - operation_.count) * element_;
}

std::size_t Executor::bytes_of(const Step& step) const { return step.size() * element_; }

bool Executor::advance(std::uint32_t stream) {
  const Step& step = current(stream);
  Progress& progress = progress_[stream];
  switch (step.kind) {
    case StepKind::send:
      return advance_send(step, progress);
    case StepKind::receive:
      return advance_receive(step, progress);
    case StepKind::receive_reduce:
      return advance_reduce(step, progress);
    case StepKind::reduce:
    case StepKind::copy:
    case StepKind::finish:
      break;
  }
  return false;
}

bool Executor::advance_send(const Step& step, Progress& progress) {
  const std::size_t sent =
      transport_.write_some(step.peer, {at(step.begin) + progress.done, bytes_of(step) - progress.done});
  progress.done += sent;
  return sent != 0;
}

bool Executor::advance_receive(const Step& step, Progress& progress) {
  const std::span<const std::byte> arrived = transport_.readable(step.peer);
  const std::size_t length = std::min(arrived.size(), bytes_of(step) - progress.done);
  if (length == 0) return false;
  std::memcpy(at(step.begin) + progress.done, arrived.data(), length);
  transport_.consume(step.peer, length);
  progress.done += length;
  return true;
}

bool Executor::advance_reduce(const Step& step, Progress& progress) {
  const std::span<const std::byte> arrived = transport_.readable(step.peer);
  const std::size_t length = std::min(arrived.size(), bytes_of(step) - progress.done - progress.carried);
  if (length == 0) return false;
  std::byte* target = at(step.begin) + progress.done;
  std::size_t used = 0;
  if (progress.carried != 0) {
    used = std::min(length, element_ - progress.carried);
    std::memcpy(progress.carry.data() + progress.carried, arrived.data(), used);
    progress.carried += used;
    if (progress.carried == element_) {
      reduce(operation_.type, operation_.op, target, progress.carry.data(), 1);
      progress.carried = 0;
      progress.done += element_;
      target += element_;
    }
  }
  const std::size_t whole = (length - used) / element_;
  reduce(operation_.type, operation_.op, target, arrived.data() + used, whole);
  progress.done += whole * element_;
  used += whole * element_;
  if (used < length) {
    std::memcpy(progress.carry.data(), arrived.data() + used, length - used);
    progress.carried = length - used;
  }
  transport_.consume(step.peer, length);
  return true;
}

void Executor::sleep(Clock::time_point deadline) {
  const std::uint32_t ticket = transport_.prepare_wait();
  // Whether a peer has left is asked before the last look: what it wrote, it wrote before it left.
  gone_.clear();
  for (const std::uint32_t stream : active_) {
    gone_.push_back(static_cast<char>(transport_.has_left(current(stream).peer)));
  }
  if (sweep() || (unfinished_ == 0 && transport_.flushed())) {
    transport_.cancel_wait();
    return;
  }
  if (const int failed = transport_.failed_rank(); failed >= 0) {
    transport_.cancel_wait();
    throw Error(ErrorCode::peer_failed, fmt::format("{}: {} has failed; its own message says why", describe(),
                                                    rank_and_host(failed)));
  }
  for (std::size_t i = 0; i < active_.size(); ++i) {
    if (gone_[i] == 0) continue;
    transport_.cancel_wait();
    throw Error(ErrorCode::peer_failed,
                fmt::format("{}: {} has left the job; all ranks must call the same collectives{}", describe(),
                            rank_and_host(current(active_[i]).peer), describe_plan()));
  }
  if (Clock::now() >= deadline) {
    transport_.cancel_wait();
    throw_timeout();
  }
  transport_.wait(ticket, deadline);
}

void Executor::flush(Clock::time_point deadline) {
  for (int idle = 0; !transport_.flushed(); ++idle) {
    if (idle < yields_before_sleep) {
      sched_yield();
    } else {
      sleep(deadline);
    }
  }
}

std::string Executor::rank_and_host(int rank) const {
  return fmt::format("rank {} (host {})", rank, map_.host_name(map_.host_of(rank)));
}

std::string Executor::describe() const {
  const Operation& call = operation_.on_behalf_of != nullptr ? *operation_.on_behalf_of : operation_;
  return fmt::format("{} #{} ({} {}, {} bytes) on {}", call.name, call.sequence, call.count,
                     to_string(call.type), call.count * size_of(call.type), rank_and_host(rank_));
}

std::string Executor::describe_plan() const {
  const PlanNames* names = program_->names();
  return names == nullptr || names->plan.empty() ? "" : fmt::format("; plan: {}", names->plan);
}

std::string Executor::describe_peers() const {
  std::string text;
  for (std::size_t i = 0; i < std::min(active_.size(), most_peers_named); ++i) {
    if (i != 0) text += ", ";
    const Step& step = current(active_[i]);
    const Progress& progress = progress_[active_[i]];
    text += fmt::format("{} ({} of {} bytes {}", rank_and_host(step.peer), progress.done + progress.carried,
                        bytes_of(step), step.kind == StepKind::send ? "taken" : "received");
    if (const PlanNames* names = program_->names(); names != nullptr && step.phase < names->phases.size()) {
      text += fmt::format(" in {}, chunk {}", names->phases[step.phase], step.chunk);
    }
    text += ')';
  }
  if (active_.size() > most_peers_named) {
    text += fmt::format(" and {} more", active_.size() - most_peers_named);
  }
  return text.empty() ? "the network" : text;
}

void Executor::throw_timeout() const {
  const std::chrono::duration<double> waited = Clock::now() - started_;
  throw Error(ErrorCode::timeout,
              fmt::format("{}: the deadline passed after {:.3g} s while waiting for {}. Either that rank is "
                          "stuck or slow (a longer deadline: DDL_DEADLINE, in seconds), or the ranks called "
                          "different collectives{}",
                          describe(), waited.count(), describe_peers(), describe_plan()));
}

}  // namespace ddl::collectives
