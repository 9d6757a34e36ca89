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

namespace {

constexpr auto before_looks_for_trouble = std::chrono::milliseconds(10);

bool is_transfer(collectives::Task::Kind kind) {
  return kind == collectives::Task::Kind::net_send || kind == collectives::Task::Kind::net_receive;
}

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

collectives::MessageTag NetworkExecutor::tag_of(const Task& task) const {
  collectives::MessageTag tag = run_->tag;
  tag.message = task.message;
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
  unfinished_ = program.tasks().size();
  missing_.assign(program.missing().begin(), program.missing().end());
  transfers_.assign(program.net_tasks(), {});
  blocks_.assign(program.net_tasks(), nullptr);
  next_receive_ = 0;
  for (const std::uint32_t index : program.first()) {
    ready_.push_back(program.urgency(index));
  }
  std::make_heap(ready_.begin(), ready_.end(), std::greater<>());
  turns_.begin();
  post_receives();
}

bool NetworkExecutor::has_room(const Task& task) const noexcept {
  return task.kind == Task::Kind::net_send ? sending_ < most_sending : queued_.size() < most_queued;
}

bool NetworkExecutor::run_ready() {
  bool moved = start_in_turn(unsent_);
  moved |= start_in_turn(unqueued_);
  while (!ready_.empty()) {
    const auto index = static_cast<std::uint32_t>(ready_.front());
    std::pop_heap(ready_.begin(), ready_.end(), std::greater<>());
    ready_.pop_back();
    // Receives never wait: what others have under way may need them.
    const bool sends = task(index).kind == Task::Kind::net_send;
    std::deque<std::uint32_t>& waiting = sends ? unsent_ : unqueued_;
    if (task(index).kind == Task::Kind::net_receive) {
      transfer(index);
    } else if (waiting.empty() && has_room(task(index))) {
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
  while (!waiting.empty() && has_room(task(waiting.front()))) {
    const std::uint32_t index = waiting.front();
    waiting.pop_front();
    is_transfer(task(index).kind) ? transfer(index) : queue(index);
    moved = true;
  }
  return moved;
}

void NetworkExecutor::transfer(std::uint32_t index) {
  const Task& task = this->task(index);
  Transfer& transfer = transfers_[task.slot];
  if (task.kind == Task::Kind::net_send) {
    ++sending_;
    network_.send(task.peer, tag_of(task), {source(task.begin, task.reads_input), bytes_of(task)}, transfer);
  } else {
    network_.receive(task.peer, tag_of(task), {target(task.begin), bytes_of(task)}, transfer);
  }
  transferring_.push_back(index);
}

/// Of what is to be reduced: into memory of its own, so it need not wait for its turn. In the program's
/// order: what comes first in it waits for nothing that comes later.
void NetworkExecutor::post_receives() {
  const auto all = run_->program.net_reduces();
  while (next_receive_ < all.size() && !receiving_.empty()) {
    const std::uint32_t index = all[next_receive_++];
    const Task& task = this->task(index);
    std::byte*& block = blocks_[task.slot];
    block = receiving_.back();
    receiving_.pop_back();
    network_.receive(task.peer, tag_of(task), {block, bytes_of(task)}, transfers_[task.slot]);
    transferring_.push_back(index);
  }
}

/// What the device is to do.
void NetworkExecutor::queue(std::uint32_t index) {
  const Task& task = this->task(index);
  std::byte* const to = target(task.begin);
  const std::byte* const from = source(task.begin, task.reads_input);
  collectives::device::Combination combination{.target = to, .elements = task.size()};
  combination.sources[0] = from;
  switch (task.kind) {
    case Task::Kind::copy:
      check_cuda(cudaMemcpyAsync(to, source(task.source, task.source_is_input), bytes_of(task),
                                 cudaMemcpyDeviceToDevice, stream()),
                 "cudaMemcpyAsync");
      return queued(index);
    case Task::Kind::net_reduce:
      combination.sources[1] = blocks_[task.slot];
      break;
    case Task::Kind::reduce:
      combination.sources[1] = source(task.source, task.source_is_input);
      break;
    case Task::Kind::finish:
      combination.operands = 1;
      combination.divisor = run_->op == ReduceOp::avg ? static_cast<int>(ranks_.size()) : 1;
      if (combination.divisor == 1 && to == from) return queued(index);  // behind what it depends on
      break;
    default:
      throw Error(ErrorCode::internal, "a program for a network shares memory with other ranks");
  }
  check_cuda(collectives::device::launch_combine(combination, run_->type, run_->op, stream()),
             "launch of a combination");
  queued(index);
}

void NetworkExecutor::queued(std::uint32_t index) {
  done_.write(++marked_, stream());
  queued_.push_back({index, marked_});
  for (const std::uint32_t later : run_->program.after(index)) {
    if (!is_transfer(task(later).kind)) satisfy(later);  // the stream keeps the order
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
    const std::uint32_t index = queued_.front().task;
    queued_.pop_front();
    const Task& task = this->task(index);
    if (task.kind == Task::Kind::net_reduce) {
      receiving_.push_back(std::exchange(blocks_[task.slot], nullptr));
      post_receives();
    }
    --unfinished_;
    for (const std::uint32_t later : run_->program.after(index)) {
      if (is_transfer(this->task(later).kind)) satisfy(later);
    }
    moved = true;
  }
  return moved;
}

bool NetworkExecutor::sweep_transfers() {
  bool moved = false;
  for (std::size_t i = 0; i < transferring_.size();) {
    const std::uint32_t index = transferring_[i];
    const Task& task = this->task(index);
    const Transfer& transfer = transfers_[task.slot];
    if (!transfer.over()) {
      ++i;
      continue;
    }
    if (transfer.state == Transfer::State::failed) throw_transfer_failed(task);
    transferring_[i] = transferring_.back();
    transferring_.pop_back();
    moved = true;
    if (task.kind == Task::Kind::net_reduce) {
      satisfy(index);
      continue;
    }
    if (task.kind == Task::Kind::net_send) --sending_;
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
      if ((task(index).kind != Task::Kind::net_send) == senders) peers.push_back(task(index).peer);
    }
  };
  collect(true);
  if (peers.empty()) collect(false);
  std::ranges::sort(peers);
  const auto [first, last] = std::ranges::unique(peers);
  peers.erase(first, last);
  return fmt::format("{}", fmt::join(peers, ", "));
}

void NetworkExecutor::throw_transfer_failed(const Task& task) const {
  throw Error(network_.failed_peer() >= 0 ? ErrorCode::peer_failed : ErrorCode::transport,
              fmt::format("the {} rank {} through {} failed: {}",
                          task.kind == Task::Kind::net_send ? "send to" : "receive from", task.peer,
                          network_.name(), network_.failure()));
}

}  // namespace ddl::device
