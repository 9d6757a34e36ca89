#include "collectives/executor.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstring>

#include "collectives/reduce.hpp"
#include "ddl/error.hpp"

namespace ddl::collectives {

using topology::Step;
using topology::StepKind;

namespace {

constexpr int yields_before_sleep = 16;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

Executor::Executor(Transport& transport, const topology::RankMap& map, int rank, int spins)
    : transport_(transport), map_(map), rank_(rank), spins_(spins) {}

void Executor::run(const topology::Steps& steps, const Operation& operation, Clock::time_point deadline) {
  operation_ = operation;
  started_ = Clock::now();
  const std::size_t element = size_of(operation.type);
  for (std::size_t i = 0; i < steps.size();) {
    const std::uint32_t number = steps[i].round;
    round_.clear();
    for (; i < steps.size() && steps[i].round == number; ++i) {
      const Step& step = steps[i];
      if (step.kind == StepKind::finish) {
        finish(operation.type, operation.op, operation.data + step.begin * element, step.end - step.begin,
               map_.ranks());
      } else {
        Progress progress;
        progress.step = step;
        progress.bytes = (step.end - step.begin) * element;
        round_.push_back(progress);
      }
    }
    unfinished_ = round_.size();
    if (unfinished_ != 0) run_round(deadline);
  }
  flush(deadline);
}

void Executor::run_round(Clock::time_point deadline) {
  gone_.reserve(round_.capacity());  // not when it sleeps for the first time, long after warm-up
  int idle = 0;
  while (unfinished_ != 0) {
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
}

bool Executor::sweep() {
  bool moved = false;
  for (std::size_t i = 0; i < round_.size(); ++i) {
    Progress& progress = round_[i];
    if (progress.done == progress.bytes || follows_unfinished(i)) continue;
    if (!advance(progress)) continue;
    moved = true;
    if (progress.done == progress.bytes) --unfinished_;
  }
  return moved;
}

// Steps of one direction with one peer share a stream, so they take turns.
bool Executor::follows_unfinished(std::size_t index) const {
  const Step& step = round_[index].step;
  for (std::size_t i = 0; i < index; ++i) {
    const Progress& earlier = round_[i];
    if (earlier.step.peer == step.peer &&
        (earlier.step.kind == StepKind::send) == (step.kind == StepKind::send) &&
        earlier.done != earlier.bytes) {
      return true;
    }
  }
  return false;
}

bool Executor::advance(Progress& progress) {
  switch (progress.step.kind) {
    case StepKind::send:
      return advance_send(progress);
    case StepKind::receive:
      return advance_receive(progress);
    case StepKind::receive_reduce:
      return advance_reduce(progress);
    case StepKind::finish:
      break;
  }
  return false;
}

bool Executor::advance_send(Progress& progress) {
  const std::byte* start = operation_.data + progress.step.begin * size_of(operation_.type);
  const std::size_t sent =
      transport_.write_some(progress.step.peer, {start + progress.done, progress.bytes - progress.done});
  progress.done += sent;
  return sent != 0;
}

bool Executor::advance_receive(Progress& progress) {
  const std::span<const std::byte> arrived = transport_.readable(progress.step.peer);
  const std::size_t length = std::min(arrived.size(), progress.bytes - progress.done);
  if (length == 0) return false;
  std::byte* start = operation_.data + progress.step.begin * size_of(operation_.type);
  std::memcpy(start + progress.done, arrived.data(), length);
  transport_.consume(progress.step.peer, length);
  progress.done += length;
  return true;
}

bool Executor::advance_reduce(Progress& progress) {
  const std::size_t element = size_of(operation_.type);
  const std::span<const std::byte> arrived = transport_.readable(progress.step.peer);
  const std::size_t length = std::min(arrived.size(), progress.bytes - progress.done - progress.carried);
  if (length == 0) return false;
  std::byte* target = operation_.data + progress.step.begin * element + progress.done;
  std::size_t used = 0;
  if (progress.carried != 0) {
    used = std::min(length, element - progress.carried);
    std::memcpy(progress.carry.data() + progress.carried, arrived.data(), used);
    progress.carried += used;
    if (progress.carried == element) {
      reduce(operation_.type, operation_.op, target, progress.carry.data(), 1);
      progress.carried = 0;
      progress.done += element;
      target += element;
    }
  }
  const std::size_t whole = (length - used) / element;
  reduce(operation_.type, operation_.op, target, arrived.data() + used, whole);
  progress.done += whole * element;
  used += whole * element;
  if (used < length) {
    std::memcpy(progress.carry.data(), arrived.data() + used, length - used);
    progress.carried = length - used;
  }
  transport_.consume(progress.step.peer, length);
  return true;
}

void Executor::sleep(Clock::time_point deadline) {
  const std::uint32_t ticket = transport_.prepare_wait();
  // Whether a peer has left is asked before the last look: what it wrote, it wrote before it left.
  gone_.clear();
  for (const Progress& progress : round_) {
    gone_.push_back(
        static_cast<char>(progress.done != progress.bytes && transport_.has_left(progress.step.peer)));
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
  for (std::size_t i = 0; i < round_.size(); ++i) {
    if (gone_[i] == 0) continue;
    transport_.cancel_wait();
    throw Error(ErrorCode::peer_failed,
                fmt::format("{}: {} has left the job; all ranks must call the same collectives", describe(),
                            rank_and_host(round_[i].step.peer)));
  }
  if (Clock::now() >= deadline) {
    transport_.cancel_wait();
    throw_timeout();
  }
  transport_.wait(ticket, deadline);
}

void Executor::flush(Clock::time_point deadline) {
  round_.clear();
  unfinished_ = 0;
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
  return fmt::format("{} #{} ({} {}, {} bytes) on {}", operation_.name, operation_.sequence, operation_.count,
                     to_string(operation_.type), operation_.count * size_of(operation_.type),
                     rank_and_host(rank_));
}

std::string Executor::describe_peers() const {
  std::string text;
  for (const Progress& progress : round_) {
    if (progress.done == progress.bytes) continue;
    if (!text.empty()) text += ", ";
    const bool sends = progress.step.kind == StepKind::send;
    text += fmt::format("{} ({} of {} bytes {})", rank_and_host(progress.step.peer),
                        progress.done + progress.carried, progress.bytes, sends ? "taken" : "received");
  }
  return text.empty() ? "the network" : text;
}

void Executor::throw_timeout() const {
  const std::chrono::duration<double> waited = Clock::now() - started_;
  throw Error(ErrorCode::timeout,
              fmt::format("{}: the deadline passed after {:.3g} s while waiting for {}. Either that rank is "
                          "stuck or slow (a longer deadline: DDL_DEADLINE, in seconds), or the ranks called "
                          "different collectives",
                          describe(), waited.count(), describe_peers()));
}

}  // namespace ddl::collectives
