// What tasks do.

#include <cstring>
#include <optional>
#include <utility>

#include "collectives/engine/driver.hpp"
#include "collectives/kernels/reduce.hpp"
#include "ddl/error.hpp"

namespace ddl::collectives {
namespace {

/// Copies of ranges that are not in shared memory: so much at a time stays in a core's cache. More is taken
/// only if nothing else can be done, since others may wait for any of them.
constexpr std::size_t most_staged_bytes = std::size_t{2} << 20;
/// Memory to receive into before it is known when it can be reduced.
constexpr std::size_t most_receiving_blocks = 64;
constexpr std::size_t most_sending = 256;
constexpr int tasks_at_a_time = 8;

}  // namespace

bool Driver::run_ready(OperationState& operation) {
  bool moved = false;
  for (int i = 0; i < tasks_at_a_time && !operation.ready.empty(); ++i) {
    run(operation, operation.take_ready());
    moved = true;
  }
  return moved;
}

void Driver::run(OperationState& operation, std::uint32_t index) {
  const Task& task = operation.task(index);
  const Call& call = operation.call;
  if (run_ != nullptr) operation.phase_times.begun(task);
  switch (task.kind) {
    case Task::Kind::post:
      return post(operation, index);
    case Task::Kind::pull:
      return pull(operation, index);
    case Task::Kind::pass:
      return pass(operation, index);
    case Task::Kind::net_send:
    case Task::Kind::net_receive:
      return transfer_range(operation, index);
    case Task::Kind::net_reduce:
      return reduce_received(operation, index);
    case Task::Kind::reduce: {
      std::byte* target = operation.target(task.begin);
      const std::byte* sources[] = {operation.source(task.begin, task.reads_input),
                                    operation.source(task.source, task.source_is_input)};
      reduce(call.type, call.op, std::span(&target, 1), sources, task.size());
      return complete(operation, index);
    }
    case Task::Kind::copy:
      std::memmove(operation.target(task.begin), operation.source(task.source, task.source_is_input),
                   operation.bytes_of(task));
      return complete(operation, index);
    case Task::Kind::finish: {
      std::byte* target = operation.target(task.begin);
      const std::byte* source = operation.source(task.begin, task.reads_input);
      const int divisor = call.op == ReduceOp::avg ? operation.program().ranks() : 1;
      if (divisor != 1 || target != source) {
        reduce(call.type, call.op, std::span(&target, 1), std::span(&source, 1), task.size(), divisor);
      }
      return complete(operation, index);
    }
  }
}

void Driver::complete(OperationState& operation, std::uint32_t index) {
  --operation.unfinished;
  if (run_ != nullptr) operation.phase_times.over(operation.task(index));
  for (const std::uint32_t later : operation.program().after(index)) {
    if (--operation.missing[later] == 0) operation.make_ready(later);
  }
}

void Driver::post(OperationState& operation, std::uint32_t index) {
  Link& peer = link(operation.task(index).member);
  if (!peer.outbox.empty() || peer.is_full()) {
    peer.outbox.push_back({&operation, index, {}, {}});
    ++waiting_notices_;
    return;
  }
  post_now(operation, peer, index);
}

/// There is room in the ring.
void Driver::post_now(OperationState& operation, Link& link, std::uint32_t index) {
  const Task& task = operation.task(index);
  OperationState::Post& post = operation.posts[index];
  const std::size_t bytes = operation.bytes_of(task);
  const std::byte* data = operation.source(task.begin, task.reads_input);
  if (post.is_answer) {
    if (!post.is_written) std::memcpy(memory_->at(post.answer_at, bytes), data, bytes);
    acknowledge(operation, link, post.answers, Notice::Kind::answered);
    return complete(operation, index);
  }
  const std::optional<SharedAddress> address = memory_->address_of(data, bytes);
  if (bytes <= (address ? eager_bytes_ : parcels_.block_bytes())) {
    announce_bytes(link, operation.call, task.message, data, bytes);
    return complete(operation, index);
  }
  if (!address && post.staging == nullptr && !stage(operation, index, false)) {
    operation.unstaged.push_back(index);
    return;
  }
  bool lends = task.partner != Task::none;
  SharedAddress from = 0;
  SharedAddress answer_at = 0;
  if (post.staging != nullptr) {
    from = answer_at = *memory_->address_of(post.staging, bytes);
  } else {
    from = *address;
    const std::optional<SharedAddress> answer = memory_->address_of(operation.target(task.begin), bytes);
    lends = lends && answer;
    if (answer) answer_at = *answer;
  }
  Notice& notice = link.next();
  const MessageTag tag = operation.tag(task.message);
  notice.communicator = tag.communicator;
  notice.call = tag.call;
  notice.message = tag.message;
  notice.bytes = static_cast<std::uint32_t>(bytes);
  notice.fingerprint = operation.call.fingerprint;
  notice.kind = lends ? Notice::Kind::lent : Notice::Kind::open;
  notice.answer = lends ? operation.task(task.partner).message : 0;
  notice.address = from;
  notice.answer_at = answer_at;
  post.is_out = true;
  ++operation.posts_out;
  link.publish();
}

/// Copies the range to shared memory. False if that has to wait.
bool Driver::stage(OperationState& operation, std::uint32_t index, bool beyond_limit) {
  if (!beyond_limit && staging_.taken() * staging_.block_bytes() >= most_staged_bytes) return false;
  const Task& task = operation.task(index);
  std::byte* block = staging_.take();
  std::memcpy(block, operation.source(task.begin, task.reads_input), operation.bytes_of(task));
  operation.posts[index].staging = block;
  return true;
}

void Driver::unstage(OperationState& operation, std::uint32_t index) {
  OperationState::Post& post = operation.posts[index];
  if (post.staging == nullptr) return;
  staging_.give_back(std::exchange(post.staging, nullptr));
  for (OperationState* waiting : operations_) {
    if (stage_more(*waiting, false)) return;
  }
}

/// Posts the first one that has waited for memory.
bool Driver::stage_more(OperationState& operation, bool beyond_limit) {
  if (operation.unstaged.empty()) return false;
  const std::uint32_t index = operation.unstaged.front();
  if (!stage(operation, index, beyond_limit)) return false;
  operation.unstaged.erase(operation.unstaged.begin());
  post(operation, index);
  return true;
}

void Driver::pull(OperationState& operation, std::uint32_t index) {
  const Task& task = operation.task(index);
  std::memcpy(operation.target(task.begin), operation.arrivals[task.inputs_begin].data,
              operation.bytes_of(task));
  release_input(operation, task.inputs_begin);
  complete(operation, index);
}

void Driver::pass(OperationState& operation, std::uint32_t index) {
  const Task& task = operation.task(index);
  const PreparedProgram& program = operation.program();
  const std::size_t bytes = operation.bytes_of(task);
  sources_.clear();
  targets_.clear();
  sources_.push_back(operation.source(task.begin, task.reads_input));
  for (std::uint32_t i = task.inputs_begin; i < task.inputs_end; ++i) {
    sources_.push_back(operation.arrivals[i].data);
  }
  targets_.push_back(operation.target(task.begin));
  for (const std::uint32_t answer :
       program.answers().subspan(task.answers_begin, task.answers_end - task.answers_begin)) {
    OperationState::Post& post = operation.posts[answer];
    if (!post.is_answer) continue;
    targets_.push_back(memory_->at(post.answer_at, bytes));
    post.is_written = true;
  }
  const bool divides = task.divides && operation.call.op == ReduceOp::avg;
  reduce(operation.call.type, operation.call.op, targets_, sources_, task.size(),
         divides ? program.ranks() : 1, operation.stores);
  for (std::uint32_t i = task.inputs_begin; i < task.inputs_end; ++i) release_input(operation, i);
  complete(operation, index);
}

void Driver::release_input(OperationState& operation, std::uint32_t index) {
  OperationState::Arrival& arrival = operation.arrivals[index];
  const Input& input = operation.program().inputs()[index];
  if (arrival.held != nullptr) parcels_.give_back(std::exchange(arrival.held, nullptr));
  if (arrival.wants_read) acknowledge(operation, link(input.member), input.message, Notice::Kind::read);
}

/// Sends or receives a range through the network.
void Driver::transfer_range(OperationState& operation, std::uint32_t index) {
  const Task& task = operation.task(index);
  Network& network = *network_of(operation);
  Transfer& transfer = operation.transfers[task.slot];
  const std::size_t bytes = operation.bytes_of(task);
  if (task.kind == Task::Kind::net_send) {
    if (operation.sending == most_sending) {
      operation.unsent.push_back(index);
      return;
    }
    ++operation.sending;
    network.send(task.peer, operation.tag(task.message),
                 {operation.source(task.begin, task.reads_input), bytes}, transfer);
  } else {
    network.receive(task.peer, operation.tag(task.message), {operation.target(task.begin), bytes}, transfer);
  }
  operation.transferring.push_back(index);
}

/// Receives that end in a reduction go to memory of their own, so they need not wait for their turn. In the
/// program's order: what comes first in it waits for nothing that comes later.
void Driver::post_receives(OperationState& operation) {
  const std::span<const std::uint32_t> all = operation.program().net_reduces();
  while (operation.next_net_reduce < all.size() && operation.receiving_blocks < most_receiving_blocks) {
    const std::uint32_t index = all[operation.next_net_reduce++];
    const Task& task = operation.task(index);
    std::byte*& block = operation.blocks[task.slot];
    block = receiving_.take();
    ++operation.receiving_blocks;
    network_of(operation)->receive(task.peer, operation.tag(task.message), {block, operation.bytes_of(task)},
                                   operation.transfers[task.slot]);
    operation.transferring.push_back(index);
  }
}

bool Driver::sweep_transfers(OperationState& operation) {
  bool moved = false;
  for (std::size_t i = 0; i < operation.transferring.size();) {
    const std::uint32_t index = operation.transferring[i];
    const Task& task = operation.task(index);
    const Transfer& transfer = operation.transfers[task.slot];
    if (!transfer.over()) {
      ++i;
      continue;
    }
    if (transfer.state == Transfer::State::failed) throw_transfer_failed(operation, index);
    moved = true;
    operation.transferring[i] = operation.transferring.back();
    operation.transferring.pop_back();
    if (task.kind == Task::Kind::net_reduce) {
      if (--operation.missing[index] == 0) operation.make_ready(index);
      continue;
    }
    if (task.kind == Task::Kind::net_send) {
      --operation.sending;
      if (!operation.unsent.empty()) {
        const std::uint32_t next = operation.unsent.front();
        operation.unsent.erase(operation.unsent.begin());
        transfer_range(operation, next);
      }
    }
    complete(operation, index);
  }
  return moved;
}

void Driver::reduce_received(OperationState& operation, std::uint32_t index) {
  const Task& task = operation.task(index);
  std::byte* target = operation.target(task.begin);
  const std::byte* sources[] = {operation.source(task.begin, task.reads_input), operation.blocks[task.slot]};
  reduce(operation.call.type, operation.call.op, std::span(&target, 1), sources, task.size());
  receiving_.give_back(std::exchange(operation.blocks[task.slot], nullptr));
  --operation.receiving_blocks;
  complete(operation, index);
  post_receives(operation);
}

}  // namespace ddl::collectives
