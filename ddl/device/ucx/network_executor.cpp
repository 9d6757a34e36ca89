#include "ddl/device/ucx/network_executor.hpp"

#include "collectives/device/kernels.hpp"

namespace ddl::device {

using collectives::Transfer;
using topology::StepKind;

namespace {

constexpr auto before_looks_for_trouble = std::chrono::milliseconds(10);
constexpr std::uint32_t turns_before_yielding = 200;
constexpr std::uint32_t turns_before_rests = 2000;

/// Steps that are complete when their transfer is. A receive_reduce also waits for the device's reduction.
bool is_transfer(StepKind kind) { return kind == StepKind::send || kind == StepKind::receive; }

}  // namespace

NetworkExecutor::NetworkExecutor(collectives::Network& network, collectives::device::Gate& gate,
                                 const GroupMembers& members, std::size_t scratch_bytes)
    : network_(network),
      gate_(gate),
      members_(members),
      scratch_bytes_(scratch_bytes),
      receiving_(block_bytes, blocks, [](std::size_t bytes) { return allocate_on_device(bytes, "UCX"); }),
      stream_(make_stream(Priority::urgent)) {
  done_.allocate();
  state_.scratch = allocate_on_device(scratch_bytes, "UCX");
  receiving_.give_back(
      receiving_.take());  // allocates now, because cudaMalloc may block behind waiting kernels
}

void NetworkExecutor::run(const collectives::Call& call) {
  start(call);
  while (state_.unfinished > 0) {
    bool moved = run_ready();
    moved |= sweep_transfers();
    moved |= sweep_stream();
    take_turn(moved, queued_.empty() ? Awaited::network : Awaited::device);
    if (idle() > before_looks_for_trouble) look_for_trouble();
  }
}

void NetworkExecutor::start(const collectives::Call& call) {
  const collectives::PreparedProgram& program = *call.program;
  state_.keep(call);
  state_.element = size_of(call.type);
  if (program.scratch() * state_.element > scratch_bytes_) {
    fail_with(ErrorCode::internal, "a program takes {} bytes of scratch memory, of {}",
              program.scratch() * state_.element, scratch_bytes_);
  }
  state_.unfinished = program.runs();
  state_.missing.assign(program.missing().begin(), program.missing().end());
  state_.transfers.assign(program.transfers(), {});
  state_.blocks.assign(program.transfers(), nullptr);
  state_.next_net_reduce = 0;
  for (const std::uint32_t index : program.first()) state_.make_ready(index);
  idle_turns_ = 0;
  post_receives();
}

/// Starts steps that are ready. At most `most_queued` steps are in flight on the stream; these wait only for
/// the stream, so the remaining steps get their turn.
bool NetworkExecutor::run_ready() {
  bool moved = false;
  while (!state_.ready.empty() && queued_.size() < most_queued) {
    const std::uint32_t index = state_.take_ready();
    is_transfer(state_.step(index).kind) ? transfer(index) : queue(index);
    moved = true;
  }
  return moved;
}

void NetworkExecutor::transfer(std::uint32_t index) {
  const collectives::StepWay& way = state_.way(index);
  Transfer& transfer = state_.transfers[way.slot];
  const collectives::MessageTag tag = state_.tag(way.message);
  if (state_.step(index).kind == StepKind::receive) {
    network_.receive(way.peer, tag, {state_.target_of(index), state_.bytes_of(index)}, transfer);
  } else {
    if (state_.sending >= most_sending) return state_.unsent.push_back(index);
    ++state_.sending;
    network_.send(way.peer, tag, {state_.range_of(index), state_.bytes_of(index)}, transfer);
  }
  state_.transferring.push_back(index);
}

/// Posts the receives of receive_reduce steps, before the steps are ready, into blocks of their own. Blocks
/// are given in the program's order, in which no step waits for a later one.
void NetworkExecutor::post_receives() {
  const auto all = state_.program().net_reduces();
  while (state_.next_net_reduce < all.size() && receiving_.taken() < blocks) {
    const std::uint32_t index = all[state_.next_net_reduce++];
    const collectives::StepWay& way = state_.way(index);
    std::byte*& block = state_.blocks[way.slot];
    block = receiving_.take();
    network_.receive(way.peer, state_.tag(way.message), {block, state_.bytes_of(index)},
                     state_.transfers[way.slot]);
    state_.transferring.push_back(index);
  }
}

/// Queues a step's kernel or copy on the stream.
void NetworkExecutor::queue(std::uint32_t index) {
  const topology::Step& step = state_.step(index);
  const ReduceOp op = state_.call().op;
  std::byte* const to = state_.target_of(index);
  if (step.kind == StepKind::copy) {
    check_cuda(cudaMemcpyAsync(to, state_.source_of(index), state_.bytes_of(index), cudaMemcpyDeviceToDevice,
                               stream()),
               "cudaMemcpyAsync");
    return queued(index);
  }
  collectives::device::Combination combination{.target = to, .elements = step.size()};
  combination.sources[0] = state_.range_of(index);
  if (step.kind == StepKind::finish) {
    combination.operands = 1;
    combination.divisor = op == ReduceOp::avg ? members_.size() : 1;
    // Needs no kernel, but its successors must still wait for the work queued before it.
    if (combination.divisor == 1 && to == combination.sources[0]) return queued(index);
  } else {
    combination.sources[1] = step.kind == StepKind::receive_reduce ? state_.blocks[state_.way(index).slot]
                                                                   : state_.source_of(index);
  }
  collectives::device::launch_combine(combination, state_.call().type, op, stream());
  queued(index);
}

/// Marks the step on the stream. Its successors on the stream become ready at once, because the stream keeps
/// their order; transfers become ready when the mark is reached.
void NetworkExecutor::queued(std::uint32_t index) {
  done_.write(++marked_, stream());
  queued_.push_back({index, marked_});
  satisfy(index, false);
}

/// Makes successors of a step ready: those that are transfers, or those that are not.
void NetworkExecutor::satisfy(std::uint32_t index, bool transfers) {
  for (const std::uint32_t later : state_.program().after(index)) {
    if (is_transfer(state_.step(later).kind) != transfers) continue;
    if (--state_.missing[later] == 0) state_.make_ready(later);
  }
}

bool NetworkExecutor::sweep_stream() {
  bool moved = false;
  while (!queued_.empty() && done_.value() >= queued_.front().mark) {
    const std::uint32_t index = queued_.front().step;
    queued_.pop_front();
    if (state_.step(index).kind == StepKind::receive_reduce) {
      receiving_.give_back(std::exchange(state_.blocks[state_.way(index).slot], nullptr));
      post_receives();
    }
    --state_.unfinished;
    satisfy(index, true);
    moved = true;
  }
  return moved;
}

bool NetworkExecutor::sweep_transfers() {
  bool moved = false;
  std::vector<std::uint32_t>& transferring = state_.transferring;
  for (std::size_t i = 0; i < transferring.size();) {
    const std::uint32_t index = transferring[i];
    const StepKind kind = state_.step(index).kind;
    const Transfer& transfer = state_.transfers[state_.way(index).slot];
    if (!transfer.over()) {
      ++i;
      continue;
    }
    if (transfer.state == Transfer::State::failed) throw_transfer_failed(index);
    transferring[i] = transferring.back();
    transferring.pop_back();
    moved = true;
    if (kind == StepKind::receive_reduce) {
      if (--state_.missing[index] == 0) state_.make_ready(index);
      continue;
    }
    if (kind == StepKind::send) {
      --state_.sending;
      if (!state_.unsent.empty()) {
        const std::uint32_t next = state_.unsent.front();
        state_.unsent.erase(state_.unsent.begin());
        this->transfer(next);
      }
    }
    --state_.unfinished;
    satisfy(index, false);
    satisfy(index, true);
  }
  return moved;
}

void NetworkExecutor::wait_for_stream() {
  done_.write(++marked_, stream());
  await(done_, marked_);
}

/// Polls the network, and sleeps after many idle polls. `moved`: other work made progress.
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

/// Sleeps for about 20 us, or, if only the network is awaited, until a network event or for at most 1 ms.
void NetworkExecutor::rest(Awaited awaited) {
  if (awaited == Awaited::device || network_.event_descriptor() < 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  } else if (network_.arm()) {
    constexpr int milliseconds = 1;
    pollfd readable{network_.event_descriptor(), POLLIN, 0};
    poll(&readable, 1, milliseconds);
  }
}

/// The time without progress. Reads the clock only after some idle polls.
collectives::Clock::duration NetworkExecutor::idle() const {
  if (idle_turns_ < turns_before_yielding) return {};
  return collectives::Clock::now() - idle_since_;
}

void NetworkExecutor::await(const StreamMark& mark, std::uint64_t value) {
  idle_turns_ = 0;
  while (mark.value() < value) {
    take_turn(false, Awaited::device);
    if (idle_turns_ > turns_before_rests) require_alive();
  }
}

void NetworkExecutor::look_for_trouble() {
  require_alive();
  if (network_.failed_peer() >= 0) throw Error(ErrorCode::peer_failed, network_.failure());
  for (const int peer : members_.ranks()) {
    if (peer == members_.context().rank() || !network_.has_other(peer, state_.tag(0))) continue;
    fail_with(ErrorCode::mismatch,
              "rank {} calls something else, or has another plan for it; all ranks must make "
              "the same calls, in the same order",
              peer);
  }
  if (idle() <= members_.deadline()) return;
  fail_with(ErrorCode::timeout,
            "waited {:g} s for ranks {}, which have not arrived, or make no progress (a longer "
            "deadline: DDL_DEADLINE, in seconds)",
            members_.deadline_seconds(), awaited_ranks());
}

/// The ranks with outstanding receives; if there are none, the ranks with outstanding sends.
std::string NetworkExecutor::awaited_ranks() const {
  std::vector<int> peers;
  const auto collect = [&](bool senders) {
    for (const std::uint32_t index : state_.transferring) {
      if ((state_.step(index).kind != StepKind::send) == senders) peers.push_back(state_.way(index).peer);
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
                          state_.step(index).kind == StepKind::send ? "send to" : "receive from",
                          state_.way(index).peer, network_.name(), network_.failure()));
}

}  // namespace ddl::device
