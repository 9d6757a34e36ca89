#include "ddl/device/ucx/network_executor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "collectives/device/network_kernels.hpp"
#include "ddl/cuda_check.hpp"
#include "ddl/error.hpp"

namespace ddl::device {

using collectives::Transfer;
using topology::StepKind;

namespace {

constexpr auto before_looks_for_trouble = std::chrono::milliseconds(10);

/// A receive_reduce is a transfer, too, but what is waited for is what the device does after it.
bool is_transfer(StepKind kind) { return kind == StepKind::send || kind == StepKind::receive; }

}  // namespace

NetworkExecutor::NetworkExecutor(collectives::Network& network, Turns& turns, int rank,
                                 std::vector<int> ranks, Memory memory, std::chrono::milliseconds deadline)
    : network_(network),
      turns_(turns),
      rank_(rank),
      ranks_(std::move(ranks)),
      memory_(memory),
      deadline_(deadline),
      stream_(make_urgent_stream()) {
  done_.allocate();
  for (std::size_t i = 0; i < blocks; ++i) receiving_.push_back(memory_.receiving + i * block_bytes);
}

std::byte* NetworkExecutor::target(std::size_t begin) const {
  const std::size_t count = run_->program.count();
  return begin >= count ? memory_.scratch + (begin - count) * element_
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
    turns_.take(moved, queued_.empty() ? Turns::Awaited::network : Turns::Awaited::device);
    if (turns_.idle() > before_looks_for_trouble) look_for_trouble();
  }
  run_ = nullptr;
}

void NetworkExecutor::start(const Run& run) {
  run_ = &run;
  element_ = size_of(run.type);
  const collectives::PreparedProgram& program = run.program;
  if (program.scratch() * element_ > memory_.scratch_bytes) {
    throw Error(ErrorCode::internal, fmt::format("a program takes {} bytes of scratch memory, of {}",
                                                 program.scratch() * element_, memory_.scratch_bytes));
  }
  unfinished_ = program.runs();
  missing_.assign(program.missing().begin(), program.missing().end());
  transfers_.assign(program.transfers(), {});
  blocks_.assign(program.transfers(), nullptr);
  next_receive_ = 0;
  for (const std::uint32_t index : program.first()) {
    ready_.push_back(program.urgency(index));
  }
  std::make_heap(ready_.begin(), ready_.end(), std::greater<>());
  turns_.begin();
  post_receives();
}

bool NetworkExecutor::has_room(StepKind kind) const noexcept {
  return kind == StepKind::send ? sending_ < most_sending : queued_.size() < most_queued;
}

bool NetworkExecutor::run_ready() {
  bool moved = start_in_turn(unsent_);
  moved |= start_in_turn(unqueued_);
  while (!ready_.empty()) {
    const auto index = static_cast<std::uint32_t>(ready_.front());
    std::pop_heap(ready_.begin(), ready_.end(), std::greater<>());
    ready_.pop_back();
    // Receives never wait: what others have under way may need them.
    const bool sends = step(index).kind == StepKind::send;
    std::deque<std::uint32_t>& waiting = sends ? unsent_ : unqueued_;
    if (step(index).kind == StepKind::receive) {
      transfer(index);
    } else if (waiting.empty() && has_room(step(index).kind)) {
      sends ? transfer(index) : queue(index);
    } else {
      waiting.push_back(index);
      continue;
    }
    moved = true;
  }
  return moved;
}

bool NetworkExecutor::start_in_turn(std::deque<std::uint32_t>& waiting) {
  bool moved = false;
  while (!waiting.empty() && has_room(step(waiting.front()).kind)) {
    const std::uint32_t index = waiting.front();
    waiting.pop_front();
    is_transfer(step(index).kind) ? transfer(index) : queue(index);
    moved = true;
  }
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
  const std::byte* const from = source(step.begin, way.reads_input);
  collectives::device::Combination combination{.target = to, .elements = step.size()};
  combination.sources[0] = from;
  if (!is_local(step.kind) && !way.by_network()) {
    throw Error(ErrorCode::internal, "a program for a network shares memory with other ranks");
  }
  switch (step.kind) {
    case StepKind::copy:
      check_cuda(cudaMemcpyAsync(to, source(step.source, way.source_is_input), bytes_of(index),
                                 cudaMemcpyDeviceToDevice, stream()),
                 "cudaMemcpyAsync");
      return queued(index);
    case StepKind::receive_reduce:
      combination.sources[1] = blocks_[way.slot];
      break;
    case StepKind::reduce:
      combination.sources[1] = source(step.source, way.source_is_input);
      break;
    case StepKind::finish:
      combination.operands = 1;
      combination.divisor = run_->op == ReduceOp::avg ? static_cast<int>(ranks_.size()) : 1;
      if (combination.divisor == 1 && to == from) return queued(index);  // behind what it depends on
      break;
    default:
      throw Error(ErrorCode::internal, "the device is to send or receive by itself");
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
  if (--missing_[later] != 0) return;
  ready_.push_back(run_->program.urgency(later));
  std::push_heap(ready_.begin(), ready_.end(), std::greater<>());
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
  turns_.await(done_, marked_, stream());
}

void NetworkExecutor::look_for_trouble() {
  require_alive(stream());
  if (network_.failed_peer() >= 0) throw Error(ErrorCode::peer_failed, network_.failure());
  for (const int peer : ranks_) {
    if (peer == ranks_[static_cast<std::size_t>(rank_)] || !network_.has_other(peer, run_->tag)) continue;
    throw Error(ErrorCode::mismatch,
                fmt::format("rank {} calls something else, or has another plan for it; all ranks must make "
                            "the same calls, in the same order",
                            peer));
  }
  if (turns_.idle() <= deadline_) return;
  throw Error(ErrorCode::timeout,
              fmt::format("waited {:g} s for ranks {}, which have not come to it, or do not get on (a longer "
                          "deadline: DDL_DEADLINE, in seconds)",
                          std::chrono::duration<double>(deadline_).count(), awaited_ranks()));
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
