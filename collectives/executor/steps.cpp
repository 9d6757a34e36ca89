#include <cstring>
#include <optional>
#include <utility>

#include "collectives/executor/driver.hpp"
#include "collectives/kernels/reduce.hpp"

namespace ddl::collectives {

using topology::Step;
using topology::StepKind;

namespace {

/// Limit for blocks that hold received data until its reduction can run.
constexpr std::size_t most_receiving_blocks = 64;
constexpr std::size_t most_sending = 256;
constexpr std::size_t most_sending_narrow = 64;  // each takes a block of `receiving_`
constexpr int runs_at_a_time = 8;
/// Limit for calls of copied memory that run in the order of the list.
constexpr std::size_t most_small_bytes = std::size_t{256} << 10;
/// Limit for messages in shared memory that are copied all the same: their sender need not wait until they
/// have been read.
constexpr std::size_t most_copied_bytes = std::size_t{16} << 10;

}  // namespace

bool Driver::run_ready(OperationState& operation) {
  bool moved = false;
  for (int i = 0; i < runs_at_a_time && !operation.ready.empty(); ++i) {
    run(operation, operation.take_ready());
    moved = true;
  }
  return moved;
}

/// Does the run whose first step is `index`.
void Driver::run(OperationState& operation, std::uint32_t index) {
  const Step& step = operation.step(index);
  if (run_ != nullptr) operation.phase_times.begun(step);
  if (operation.way(index).by_network()) {
    return step.kind == StepKind::receive_reduce ? reduce_received(operation, index)
                                                 : transfer_range(operation, index);
  }
  if (step.kind == StepKind::send) return post(operation, index);
  step.kind == StepKind::round ? round_range(operation, index) : combine(operation, index);
  complete(operation, index);
}

/// Collects a run's operands in `sources_`. `data_of(i)`: the data that step i received, or null if it has
/// not arrived. Returns the divisor of the result; 0 if data is missing.
template <typename DataOf>
int Driver::collect_sources(OperationState& operation, std::uint32_t first, std::uint32_t end,
                            const DataOf& data_of) {
  const std::span<const Step> steps = operation.program().steps();
  const bool averages = operation.call().op == ReduceOp::avg;
  int divisor = 1;
  sources_.clear();
  const StepKind how = steps[first].kind;
  if (how != StepKind::receive && how != StepKind::copy) sources_.push_back(operation.range_of(first));
  for (std::uint32_t i = first; i < end; ++i) {
    const StepKind kind = steps[i].kind;
    if (is_receive(kind)) {
      const std::byte* const data = data_of(i);
      if (data == nullptr) return 0;
      sources_.push_back(data);
    } else if (has_source(kind)) {
      sources_.push_back(operation.source_of(i));
    } else if (averages) {
      divisor = operation.program().ranks();
    }
  }
  return divisor;
}

/// In one pass over memory, writes sources_[0] op sources_[1] op ... to each of `targets`.
void Driver::combine_sources(const OperationState& operation, std::uint32_t first,
                             std::span<std::byte* const> targets, int divisor) {
  if (divisor == 1 && sources_.size() == 1 && targets.size() == 1) {
    if (targets[0] == sources_[0]) return;
    return operation.copy_out(targets[0], sources_[0], operation.bytes_of(first), CopyBy::vectors);
  }
  const Step& step = operation.step(first);
  reduce(operation.call().type, operation.call().op, targets, sources_, step.size(), divisor,
         is_receive(step.kind) ? operation.stores : Stores::automatic);
}

/// Does a run whose messages have all arrived. The same pass writes results into the memory of peers that
/// lent it.
void Driver::combine(OperationState& operation, std::uint32_t first) {
  const PreparedProgram& program = operation.program();
  const std::uint32_t end = program.end_of_run(first);
  const int divisor =
      collect_sources(operation, first, end, [&](std::uint32_t i) { return operation.arrival(i).data; });
  targets_.assign(1, operation.target_of(first));
  for (std::uint32_t i = first; i < end; ++i) {
    if (operation.step(i).kind != StepKind::receive_reduce) continue;
    const std::uint32_t answer = program.way(i).answer;
    if (answer == StepWay::none || !program.way(answer).follows_run || !operation.post(answer).is_answer) {
      continue;
    }
    targets_.push_back(memory_->at(operation.post(answer).answer_at, operation.bytes_of(first)));
    operation.post(answer).is_written = true;
  }
  combine_sources(operation, first, targets_, divisor);
  for (std::uint32_t i = first; i < end; ++i) {
    if (is_receive(operation.step(i).kind)) release_arrival(operation, i);
  }
}

void Driver::complete(OperationState& operation, std::uint32_t index) {
  --operation.unfinished;
  if (run_ != nullptr) operation.phase_times.over(operation.step(index));
  for (const std::uint32_t later : operation.program().after(index)) {
    if (--operation.missing[later] == 0) operation.make_ready(later);
  }
}

void Driver::post(OperationState& operation, std::uint32_t index) {
  MemberLink& peer = link(operation.way(index).member);
  if (!peer.outbox.empty() || peer.is_full()) {
    peer.outbox.push_back({&operation, index, {}, {}});
    ++waiting_notices_;
    return;
  }
  post_now(operation, peer, index);
}

/// The ring must have room.
void Driver::post_now(OperationState& operation, MemberLink& link, std::uint32_t index) {
  const StepWay& way = operation.way(index);
  OperationState::Post& post = operation.post(index);
  const std::size_t bytes = operation.bytes_of(index);
  const std::byte* data = operation.range_of(index);
  if (post.is_answer) {
    if (!post.is_written) copy_to_peer(memory_->at(post.answer_at, bytes), data, bytes);
    acknowledge(operation, link, post.answers, Notice::Kind::answered);
    return complete(operation, index);
  }
  const std::optional<SharedAddress> address = memory_->address_of(data, bytes);
  if (bytes <= (address ? eager_bytes_ : parcels_.block_bytes())) {
    link.send_small(operation.tag(way.message), data, bytes);
    return complete(operation, index);
  }
  Staging::Copy& copy = operation.copy(index);
  const bool is_copied = !address || (bytes <= most_copied_bytes && way.answer == StepWay::none);
  if (is_copied && copy.data == nullptr && !stage(operation, index, false) && !address) {
    return operation.unstaged.push_back(index);
  }
  const SharedAddress from = copy.data == nullptr ? *address : *memory_->address_of(copy.data, bytes);
  if (copy.is_final()) {
    send_copy(link, operation.tag(way.message), copy, bytes);
    return complete(operation, index);
  }
  std::optional<SharedAddress> answer_at;
  if (way.answer != StepWay::none) {
    answer_at = copy.data != nullptr ? from : memory_->address_of(operation.target_of(index), bytes);
  }
  Notice& notice =
      link.next(operation.tag(way.message), answer_at ? Notice::Kind::lent : Notice::Kind::open, bytes);
  notice.answer = answer_at ? operation.way(way.answer).message : 0;
  notice.address = from;
  notice.answer_at = answer_at.value_or(0);
  post.is_out = true;
  ++operation.posts_out;
  link.publish();
}

void Driver::send_copy(MemberLink& link, const MessageTag& tag, Staging::Copy& copy, std::size_t bytes) {
  const Notice::Kind kind = copy.turn_block ? Notice::Kind::handed : Notice::Kind::copied;
  Notice& notice = link.next(tag, kind, bytes);
  notice.address = *memory_->address_of(copy.data, bytes);
  if (copy.turn_block) {
    notice.answer = *copy.turn_block;
  } else {
    notice.unread = *memory_->address_of(copy.flags + --copy.left, sizeof(Staging::Flag));
  }
  link.publish();
}

/// Sees to it that a copy of the range is in shared memory. Returns false if no memory for it is available
/// now. `beyond_limit`: nothing else can make progress, and peers may wait for the message.
bool Driver::stage(OperationState& operation, std::uint32_t index, bool beyond_limit) {
  Staging::Copy& copy = operation.copy(index);
  if (copy.data != nullptr) return true;
  const PreparedProgram& program = operation.program();
  const StepWay& way = program.way(index);
  const std::byte* const data = operation.range_of(index);
  const std::size_t bytes = operation.bytes_of(index);
  const std::uint32_t sends = program.copies()[way.copy];
  const bool is_only_read = way.answer == StepWay::none;
  // In calls on more memory than this, the ring is as fast, or faster.
  const bool takes_turns = program.count() * operation.element <= 2 * core_cache_bytes_;
  if (takes_turns && sends == 1 && is_only_read) {
    copy = link(way.member).turn_blocks.take(data, bytes);
  }
  if (copy.data == nullptr) copy = staging_.take(data, bytes, sends, is_only_read, beyond_limit);
  if (copy.data == nullptr) return false;
  staging_deadline_ = std::max(staging_deadline_, operation.call().deadline);
  const bool is_timed = copy.flags != nullptr && bytes >= CopyPace::least_timed;
  const bool streams = copy.flags != nullptr && copy_pace_.streams();
  const std::uint64_t began = is_timed ? Ticks::now() : 0;
  (streams ? copy_streaming : copy_to_peer)(copy.data, data, bytes);
  if (is_timed) copy_pace_.note(streams, bytes, Ticks::now() - began);
  deliver_sent(operation, index);
  return true;
}

/// Copies input that `deliver` would copy at the end where it has just been read, and is in the core's cache:
/// an all-gather then reads this rank's part from beyond that cache once, not twice.
void Driver::deliver_sent(OperationState& operation, std::uint32_t index) {
  const Buffers& buffers = operation.call().buffers;
  const Step& step = operation.step(index);
  const auto is_in = [&](const PreparedProgram::Range& range) {
    return step.begin >= range.begin && step.end <= range.end;
  };
  if (!operation.delivers_sent || !is_in({buffers.begin, buffers.end}) ||
      std::ranges::none_of(operation.program().unwritten(), is_in)) {
    return;
  }
  const std::size_t offset = step.begin * operation.element;
  operation.copy_out(buffers.output + offset, buffers.input + offset, operation.bytes_of(index), CopyBy::any);
  operation.delivered.push_back({step.begin, step.end});
}

/// Frees the copy of an acknowledged message once the others that share it are acknowledged, too.
void Driver::unstage(OperationState& operation, std::uint32_t index) {
  Staging::Copy& copy = operation.copy(index);
  if (copy.data != nullptr && --copy.left == 0) staging_.give_back(copy);
}

/// Posts the first range that waits for staging memory, and those after it that share its copy.
bool Driver::stage_more(OperationState& operation, bool beyond_limit) {
  std::vector<std::uint32_t>& unstaged = operation.unstaged;
  if (unstaged.empty()) return false;
  const std::uint32_t copy = operation.way(unstaged.front()).copy;
  bool staged = false;
  while (!unstaged.empty() && operation.way(unstaged.front()).copy == copy &&
         stage(operation, unstaged.front(), beyond_limit)) {
    const std::uint32_t index = unstaged.front();
    unstaged.erase(unstaged.begin());
    post(operation, index);
    staged = true;
  }
  return staged;
}

void Driver::release_arrival(OperationState& operation, std::uint32_t index) {
  OperationState::Arrival& arrival = operation.arrival(index);
  const StepWay& way = operation.way(index);
  if (arrival.held != nullptr) parcels_.give_back(std::exchange(arrival.held, nullptr));
  if (arrival.unread != nullptr) arrival.unread->store(0, std::memory_order_release);
  if (arrival.turn_block) link(way.member).turn_blocks.read(*arrival.turn_block);
  if (arrival.wants_read) acknowledge(operation, link(way.member), way.message, Notice::Kind::read);
}

void Driver::transfer_range(OperationState& operation, std::uint32_t index) {
  const StepWay& way = operation.way(index);
  Network& network = *network_of(operation);
  Transfer& transfer = operation.transfers[way.slot];
  const Step& step = operation.step(index);
  const std::size_t bytes = operation.bytes_of(index);
  if (step.kind == StepKind::send) {
    if (operation.sending >= (step.narrow ? most_sending_narrow : most_sending))
      return operation.unsent.push_back(index);
    ++operation.sending;
    const std::byte* data = operation.range_of(index);
    if (step.narrow) {
      std::byte* const block = operation.blocks[way.slot] = receiving_.take();
      narrow(operation.program().program().wire, {reinterpret_cast<const float*>(data), step.size()}, block);
      data = block;
    }
    network.send(way.peer, operation.tag(way.message), {data, bytes}, transfer);
  } else {
    std::byte* data = operation.target_of(index);
    if (step.narrow) data = operation.blocks[way.slot] = receiving_.take();
    network.receive(way.peer, operation.tag(way.message), {data, bytes}, transfer);
  }
  operation.transferring.push_back(index);
}

/// Rounds the range to values of the wire type, and keeps the rounding errors for the next call.
void Driver::round_range(const OperationState& operation, std::uint32_t index) const {
  const Step& step = operation.step(index);
  Rounding rounding{reinterpret_cast<const float*>(operation.range_of(index)),
                    reinterpret_cast<float*>(operation.target_of(index))};
  const Residual& residual = operation.call().residual;
  if (residual.kept != nullptr) {
    rounding.kept = residual.kept + step.source;
    rounding.left = residual.left + step.source;
  }
  round_to(operation.program().program().wire, rounding, step.size());
}

/// Widens a received narrow message, or releases the narrow copy of a sent one.
void Driver::widen_block(OperationState& operation, std::uint32_t index, std::byte* target) {
  const Step& step = operation.step(index);
  std::byte*& block = operation.blocks[operation.way(index).slot];
  if (step.kind != StepKind::send) {
    widen(operation.program().program().wire, block, {reinterpret_cast<float*>(target), step.size()});
  }
  receiving_.give_back(std::exchange(block, nullptr));
}

/// Posts receives whose data is reduced later. They have blocks of their own, so they can be posted early; in
/// program order, because an earlier one never waits for a later one.
void Driver::post_receives(OperationState& operation) {
  const std::span<const std::uint32_t> all = operation.program().net_reduces();
  while (operation.next_net_reduce < all.size() && operation.receiving_blocks < most_receiving_blocks) {
    const std::uint32_t index = all[operation.next_net_reduce++];
    const StepWay& way = operation.way(index);
    std::byte*& block = operation.blocks[way.slot];
    block = receiving_.take();
    ++operation.receiving_blocks;
    network_of(operation)->receive(way.peer, operation.tag(way.message), {block, operation.bytes_of(index)},
                                   operation.transfers[way.slot]);
    operation.transferring.push_back(index);
  }
}

bool Driver::sweep_transfers(OperationState& operation) {
  bool moved = false;
  for (std::size_t i = 0; i < operation.transferring.size();) {
    const std::uint32_t index = operation.transferring[i];
    const StepKind kind = operation.step(index).kind;
    const Transfer& transfer = operation.transfers[operation.way(index).slot];
    if (!transfer.over()) {
      ++i;
      continue;
    }
    if (transfer.state == Transfer::State::failed) throw_transfer_failed(operation, index);
    moved = true;
    operation.transferring[i] = operation.transferring.back();
    operation.transferring.pop_back();
    if (kind == StepKind::receive_reduce) {
      if (--operation.missing[index] == 0) operation.make_ready(index);
      continue;
    }
    if (operation.step(index).narrow) widen_block(operation, index, operation.target_of(index));
    if (kind == StepKind::send) {
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
  std::byte*& block = operation.blocks[operation.way(index).slot];
  if (operation.step(index).narrow) {
    std::byte* const wide = receiving_.take();
    widen_block(operation, index, wide);
    block = wide;
  }
  std::byte* target = operation.target_of(index);
  const std::byte* sources[] = {operation.range_of(index), block};
  reduce(operation.call().type, operation.call().op, std::span(&target, 1), sources,
         operation.step(index).size());
  receiving_.give_back(std::exchange(block, nullptr));
  --operation.receiving_blocks;
  complete(operation, index);
  post_receives(operation);
}

/// Whether all messages are sent as copies, so that no send waits.
inline bool Driver::is_small(const Call& call) const {
  const PreparedProgram& program = *call.program;
  if (busy() || !kept_early_.empty() || call.compares || program.transfers() != 0 || program.rounds() ||
      (run_ != nullptr && !program.has_one_phase())) {
    return false;
  }
  const std::size_t element = size_of(call.type);
  if (program.longest_message() * element <= parcels_.block_bytes()) return true;
  const bool is_copied =
      program.longest_message() * element <= most_copied_bytes || !memory_->address_of(call.buffers.input, 1);
  return is_copied && !program.lends() && program.count() * element <= most_small_bytes;
}

/// The cache lines are on their way while the call is placed.
inline void Driver::prepare_first_send(const Call& call) {
  const std::span<const Step> steps = call.program->steps();
  if (steps.empty() || steps[0].kind != StepKind::send) return;
  const std::size_t bytes = steps[0].size() * size_of(call.type);
  if (bytes <= parcels_.block_bytes()) link(call.program->way(0).member).prepare_small(bytes);
}

OperationState* Driver::run_small(Call& call) {
  if (!is_small(call)) {
    call.enter(recorder_);
    return &begin(call, nullptr);
  }
  prepare_first_send(call);
  if (small_ == nullptr) small_ = &free_operation();
  place(*small_, call);
  const std::uint32_t done = run_in_order(*small_);
  call.enter(recorder_);
  if (done == call.program->steps().size()) {
    deliver(*small_);
    return nullptr;
  }
  OperationState& operation = *std::exchange(small_, nullptr);
  operation.keep(std::move(call));
  begin_from(operation, done);
  return &operation;
}

/// Does runs in the order of the list, each as soon as its messages have arrived. Returns the first run that
/// would wait for longer than this rank spins, or the number of steps. A result that the next step only
/// copies is written straight to the copy's target: its sends are complete, so nothing reads the range any
/// more.
std::uint32_t Driver::run_in_order(OperationState& operation) {
  const PreparedProgram& program = operation.program();
  const std::span<const Step> steps = program.steps();
  const auto size = static_cast<std::uint32_t>(steps.size());
  MessageTag tag = operation.tag(0);
  operation.active = false;
  int idle = 0;
  std::uint32_t run = 0;
  for (std::uint32_t end = 0; run < size; run = end) {
    end = program.end_of_run(run);
    const StepWay& way = program.way(run);
    if (steps[run].kind == StepKind::send) {
      MemberLink& peer = link(way.member);
      if (peer.is_full() || !peer.outbox.empty()) break;
      tag.message = way.message;
      const std::byte* const data = operation.range_of(run);
      const std::size_t bytes = operation.bytes_of(run);
      if (bytes <= parcels_.block_bytes()) {
        peer.send_small(tag, data, bytes);
        continue;
      }
      Staging::Copy& copy = operation.copy(run);
      if (bytes > most_copied_bytes && memory_->address_of(data, bytes)) break;
      if (!stage(operation, run, false) || !copy.is_final()) break;
      send_copy(peer, tag, copy, bytes);
      continue;
    }
    operation.call().enter(recorder_);
    senders_.clear();
    const int divisor = collect_sources(operation, run, end, [&](std::uint32_t i) {
      const StepWay& from = program.way(i);
      MemberLink& sender = *senders_.emplace_back(&link(from.member));
      tag.message = from.message;
      return await_small(sender, tag, operation.bytes_of(i), idle);
    });
    if (divisor == 0) break;
    const bool copies = way.copied_by == end;
    std::byte* const target = operation.target_of(copies ? end : run);
    combine_sources(operation, run, {&target, 1}, divisor);
    for (MemberLink* const sender : senders_) {
      const Notice& notice = *sender->arrived();
      if (notice.kind == Notice::Kind::copied) unread_flag(notice)->store(0, std::memory_order_release);
      if (notice.kind == Notice::Kind::handed) sender->turn_blocks.read(notice.answer);
      sender->drop();
    }
    if (copies) ++end;
  }
  for (const int member : program.members()) link(member).make_room();
  return run;
}

/// The peer's message, if it arrives within the spin limit and before any other one; else null.
const std::byte* Driver::await_small(const MemberLink& peer, const MessageTag& tag, std::size_t bytes,
                                     int& idle) const {
  // The message comes with the notice, not after it. While a longer one is written, its sender needs the
  // lines.
  const bool is_fetched = bytes > Notice::most_inline && bytes <= MemberLink::most_fetched;
  const Notice* notice = peer.arrived();
  for (; notice == nullptr && idle < spins_; ++idle) {
    if (is_fetched) fetch(peer.arrived_parcel(), bytes);
    pause_briefly();
    notice = peer.arrived();
  }
  if (notice == nullptr || !(notice->tag == tag) || notice->bytes != bytes) return nullptr;
  switch (notice->kind) {
    case Notice::Kind::here:
      return notice->inlined.data();
    case Notice::Kind::parcel:
      return peer.arrived_parcel();
    case Notice::Kind::copied:
      return unread_flag(*notice) == nullptr ? nullptr : memory_->at(notice->address, bytes);
    case Notice::Kind::handed:
      return memory_->at(notice->address, bytes);
    default:
      return nullptr;
  }
}

/// Null if the sender names memory that is not shared.
Staging::Flag* Driver::unread_flag(const Notice& notice) const noexcept {
  return reinterpret_cast<Staging::Flag*>(memory_->at(notice.unread, sizeof(Staging::Flag)));
}

}  // namespace ddl::collectives
