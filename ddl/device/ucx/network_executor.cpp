#include "ddl/device/ucx/network_executor.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "collectives/device/kernels.hpp"
#include "ddl/cuda_check.hpp"
#include "ddl/error.hpp"

namespace ddl::device {

using collectives::Transfer;
using topology::StepKind;

namespace {

constexpr auto before_looks_for_trouble = std::chrono::milliseconds(10);
constexpr std::uint32_t turns_before_yielding = 200;
constexpr std::uint32_t turns_before_rests = 2000;

/// A receive_reduce is a transfer, too, but what is waited for is what the device does after it.
bool is_transfer(StepKind kind) { return kind == StepKind::send || kind == StepKind::receive; }

}  // namespace

NetworkExecutor::NetworkExecutor(collectives::Network& network, collectives::device::Gate& gate,
                                 const GroupMembers& members, std::size_t scratch_bytes)
    : network_(network),
      gate_(gate),
      members_(members),
      scratch_bytes_(scratch_bytes),
      scratch_(allocate_on_device(scratch_bytes, "UCX")),
      receiving_memory_(allocate_on_device(blocks * block_bytes, "UCX")),
      stream_(make_stream(Priority::urgent)) {
  done_.allocate();
  for (std::size_t i = 0; i < blocks; ++i) receiving_.push_back(receiving_memory_.get() + i * block_bytes);
}

std::byte* NetworkExecutor::target(std::size_t begin) const {
  const std::size_t count = run_->program.count();
  return begin >= count ? scratch_.get() + (begin - count) * element_
                        : run_->buffers.target + begin * element_;
}

const std::byte* NetworkExecutor::source(std::size_t begin, bool is_input) const {
  return is_input ? run_->buffers.input + begin * element_ : target(begin);
}

collectives::MessageTag NetworkExecutor::tag_of(std::uint32_t index) const {
  collectives::MessageTag tag = run_->tag;
  tag.message = way(index).message;
  return tag;
}

void NetworkExecutor::run(const Run& run) {
  start(run);
  while (unfinished_ > 0) {
    bool moved = run_ready();
    moved |= sweep_transfers();
    moved |= sweep_stream();
    take_turn(moved, queued_.empty() ? Awaited::network : Awaited::device);
    if (idle() > before_looks_for_trouble) look_for_trouble();
  }
  run_ = nullptr;
}

void NetworkExecutor::start(const Run& run) {
  run_ = &run;
  element_ = size_of(run.type);
  const collectives::PreparedProgram& program = run.program;
  if (program.scratch() * element_ > scratch_bytes_) {
    throw Error(ErrorCode::internal, fmt::format("a program takes {} bytes of scratch memory, of {}",
                                                 program.scratch() * element_, scratch_bytes_));
  }
  unfinished_ = program.runs();
  missing_.assign(program.missing().begin(), program.missing().end());
  transfers_.assign(program.transfers(), {});
  blocks_.assign(program.transfers(), nullptr);
  next_receive_ = 0;
  for (const std::uint32_t index : program.first()) ready_.push(program.urgency(index));
  idle_turns_ = 0;
  post_receives();
}

/// Receives do not wait for their turn: what others have under way may need them.
bool NetworkExecutor::run_ready() {
  bool moved = false;
  do {
    while (!ready_.empty()) {
      const auto index = static_cast<std::uint32_t>(ready_.top());
      ready_.pop();
      if (step(index).kind == StepKind::receive) {
        transfer(index);
        moved = true;
      } else {
        (step(index).kind == StepKind::send ? unsent_ : unqueued_).push_back(index);
      }
    }
    for (; !unsent_.empty() && sending_ < most_sending; unsent_.pop_front()) {
      transfer(unsent_.front());
      moved = true;
    }
    for (; !unqueued_.empty() && queued_.size() < most_queued; unqueued_.pop_front()) {
      queue(unqueued_.front());
      moved = true;
    }
  } while (!ready_.empty());  // the device may do what depends on what has been queued
  return moved;
}

void NetworkExecutor::transfer(std::uint32_t index) {
  const collectives::StepWay& way = this->way(index);
  Transfer& transfer = transfers_[way.slot];
  if (step(index).kind == StepKind::send) {
    ++sending_;
    network_.send(way.peer, tag_of(index), {source(step(index).begin, way.reads_input), bytes_of(index)},
                  transfer);
  } else {
    network_.receive(way.peer, tag_of(index), {target(step(index).begin), bytes_of(index)}, transfer);
  }
  transferring_.push_back(index);
}

/// Of what is to be reduced: into memory of its own, so it need not wait for its turn. In the program's
/// order: what comes first in it waits for nothing that comes later.
void NetworkExecutor::post_receives() {
  const auto all = run_->program.net_reduces();
  while (next_receive_ < all.size() && !receiving_.empty()) {
    const std::uint32_t index = all[next_receive_++];
    const collectives::StepWay& way = this->way(index);
    std::byte*& block = blocks_[way.slot];
    block = receiving_.back();
    receiving_.pop_back();
    network_.receive(way.peer, tag_of(index), {block, bytes_of(index)}, transfers_[way.slot]);
    transferring_.push_back(index);
  }
}

/// What the device is to do.
void NetworkExecutor::queue(std::uint32_t index) {
  const topology::Step& step = this->step(index);
  const collectives::StepWay& way = this->way(index);
  std::byte* const to = target(step.begin);
  if (step.kind == StepKind::copy) {
    check_cuda(cudaMemcpyAsync(to, source(step.source, way.source_is_input), bytes_of(index),
                               cudaMemcpyDeviceToDevice, stream()),
               "cudaMemcpyAsync");
    return queued(index);
  }
  collectives::device::Combination combination{.target = to, .elements = step.size()};
  combination.sources[0] = source(step.begin, way.reads_input);
  if (step.kind == StepKind::finish) {
    combination.operands = 1;
    combination.divisor = run_->op == ReduceOp::avg ? members_.size() : 1;
    // Nothing to do, but behind what it depends on.
    if (combination.divisor == 1 && to == combination.sources[0]) return queued(index);
  } else {
    combination.sources[1] =
        step.kind == StepKind::receive_reduce ? blocks_[way.slot] : source(step.source, way.source_is_input);
  }
  check_cuda(collectives::device::launch_combine(combination, run_->type, run_->op, stream()),
             "launch of a combination");
  queued(index);
}

void NetworkExecutor::queued(std::uint32_t index) {
  done_.write(++marked_, stream());
  queued_.push_back({index, marked_});
  for (const std::uint32_t later : run_->program.after(index)) {
    if (!is_transfer(step(later).kind)) satisfy(later);  // the stream keeps the order
  }
}

void NetworkExecutor::satisfy(std::uint32_t later) {
  if (--missing_[later] == 0) ready_.push(run_->program.urgency(later));
}

bool NetworkExecutor::sweep_stream() {
  bool moved = false;
  while (!queued_.empty() && done_.value() >= queued_.front().mark) {
    const std::uint32_t index = queued_.front().step;
    queued_.pop_front();
    if (step(index).kind == StepKind::receive_reduce) {
      receiving_.push_back(std::exchange(blocks_[way(index).slot], nullptr));
      post_receives();
    }
    --unfinished_;
    for (const std::uint32_t later : run_->program.after(index)) {
      if (is_transfer(step(later).kind)) satisfy(later);
    }
    moved = true;
  }
  return moved;
}

bool NetworkExecutor::sweep_transfers() {
  bool moved = false;
  for (std::size_t i = 0; i < transferring_.size();) {
    const std::uint32_t index = transferring_[i];
    const StepKind kind = step(index).kind;
    const Transfer& transfer = transfers_[way(index).slot];
    if (!transfer.over()) {
      ++i;
      continue;
    }
    if (transfer.state == Transfer::State::failed) throw_transfer_failed(index);
    transferring_[i] = transferring_.back();
    transferring_.pop_back();
    moved = true;
    if (kind == StepKind::receive_reduce) {
      satisfy(index);
      continue;
    }
    if (kind == StepKind::send) --sending_;
    --unfinished_;
    for (const std::uint32_t later : run_->program.after(index)) satisfy(later);
  }
  return moved;
}

void NetworkExecutor::wait_for_stream() {
  done_.write(++marked_, stream());
  await(done_, marked_);
}

/// Moves the network on; after many turns in which nothing did, sleeps. `moved`: something else than the
/// network has.
void NetworkExecutor::take_turn(bool moved, Awaited awaited) {
  if (ended_) throw Ended();
  __atomic_store_n(&gate_.beat, gate_.beat + 1, __ATOMIC_RELAXED);
  if (network_.progress() || moved) {
    idle_turns_ = 0;
    return;
  }
  if (++idle_turns_ == turns_before_yielding) idle_since_ = collectives::Clock::now();
  if (idle_turns_ > turns_before_rests) return rest(awaited);
  if (idle_turns_ > turns_before_yielding) std::this_thread::yield();
}

/// Some 20 us, or, if only the network is awaited, until something comes, 1 ms at most.
void NetworkExecutor::rest(Awaited awaited) {
  if (awaited == Awaited::device || network_.event_descriptor() < 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  } else if (network_.arm()) {
    constexpr int milliseconds = 1;
    pollfd readable{network_.event_descriptor(), POLLIN, 0};
    poll(&readable, 1, milliseconds);
  }
}

/// Nothing has moved for so long. Asks the clock only when it begins to be long.
collectives::Clock::duration NetworkExecutor::idle() const {
  if (idle_turns_ < turns_before_yielding) return {};
  return collectives::Clock::now() - idle_since_;
}

void NetworkExecutor::await(const StreamMark& mark, std::uint64_t value) {
  idle_turns_ = 0;
  while (mark.value() < value) {
    take_turn(false, Awaited::device);
    if (idle_turns_ > turns_before_rests) require_alive(stream());
  }
}

void NetworkExecutor::look_for_trouble() {
  require_alive(stream());
  if (network_.failed_peer() >= 0) throw Error(ErrorCode::peer_failed, network_.failure());
  for (const int peer : members_.ranks()) {
    if (peer == members_.context().rank() || !network_.has_other(peer, run_->tag)) continue;
    throw Error(ErrorCode::mismatch,
                fmt::format("rank {} calls something else, or has another plan for it; all ranks must make "
                            "the same calls, in the same order",
                            peer));
  }
  if (idle() <= members_.deadline()) return;
  throw Error(ErrorCode::timeout,
              fmt::format("waited {:g} s for ranks {}, which have not come to it, or do not get on (a longer "
                          "deadline: DDL_DEADLINE, in seconds)",
                          members_.deadline_seconds(), awaited_ranks()));
}

/// Those from which something is to come; if there are none, those that do not take what is sent.
std::string NetworkExecutor::awaited_ranks() const {
  std::vector<int> peers;
  const auto collect = [&](bool senders) {
    for (const std::uint32_t index : transferring_) {
      if ((step(index).kind != StepKind::send) == senders) peers.push_back(way(index).peer);
    }
  };
  collect(true);
  if (peers.empty()) collect(false);
  std::ranges::sort(peers);
  const auto [first, last] = std::ranges::unique(peers);
  peers.erase(first, last);
  return fmt::format("{}", fmt::join(peers, ", "));
}

void NetworkExecutor::throw_transfer_failed(std::uint32_t index) const {
  throw Error(network_.failed_peer() >= 0 ? ErrorCode::peer_failed : ErrorCode::transport,
              fmt::format("the {} rank {} through {} failed: {}",
                          step(index).kind == StepKind::send ? "send to" : "receive from", way(index).peer,
                          network_.name(), network_.failure()));
}

}  // namespace ddl::device
