#include <fmt/format.h>

#include <cstring>

#include "collectives/executor/driver.hpp"
#include "collectives/kernels/reduce.hpp"
#include "ddl/error.hpp"

namespace ddl::collectives {

bool Driver::drain() {
  bool moved = false;
  if (waiting_notices_ != 0) {
    // Links of finished operations may have some, too.
    for (const std::unique_ptr<MemberLink>& link : links_) {
      if (link && !link->outbox.empty() && empty_outbox(*link)) moved = true;
    }
  }
  // By index, because a finished operation removes links.
  for (std::size_t i = 0; i < listened_.size(); ++i) {
    if (drain(*listened_[i])) moved = true;
  }
  return moved;
}

bool Driver::drain(MemberLink& link) {
  bool moved = false;
  for (const Notice* notice = link.arrived(); notice != nullptr; notice = link.arrived()) {
    moved = true;
    OperationState* const operation = find(notice->tag);
    if (operation != nullptr) {
      take(*operation, link, *notice, link.arrived_parcel(), true);
    } else {
      check_comparison(link, *notice);
      keep_for_later(link, *notice);
    }
    link.drop();
    // A peer may wait for what can be sent now, and to take the next message may be to copy or reduce it.
    if (operation != nullptr) run_ready(*operation);
  }
  link.make_room();
  return moved;
}

/// A call begins after it has received all messages of its comparison. One that arrives later is from a rank
/// that called something else, which is new to it.
void Driver::check_comparison(const MemberLink& link, const Notice& notice) {
  if (!Call::is_comparison(notice.tag.communicator)) return;
  const MessageTag call{Call::channel_of_calls(notice.tag.communicator), notice.tag.call, 0};
  const OperationState* const operation = find(call);
  if (operation != nullptr) throw_differs(operation->call(), link.rank);
}

void Driver::take(OperationState& operation, MemberLink& link, const Notice& notice, const std::byte* parcel,
                  bool may_run) {
  if (notice.kind != Notice::Kind::read && notice.kind != Notice::Kind::answered) {
    return take_data(operation, notice, link.peer, parcel, may_run);
  }
  const std::uint32_t index = operation.program().send_of(link.peer, notice.tag.message);
  if (index == StepWay::none || !operation.post(index).is_out) {
    throw_about(operation.call(), ErrorCode::internal,
                fmt::format("{}: {} acknowledges message {}, which was not sent to it",
                            describe(operation.call()), rank_and_host(link.rank), notice.tag.message));
  }
  OperationState::Post& post = operation.post(index);
  post.is_out = false;
  --operation.posts_out;
  const std::byte* const staged = operation.copy(index).data;
  if (notice.kind == Notice::Kind::answered && staged != nullptr) {
    operation.copy_out(operation.target_of(index), staged, operation.bytes_of(index), CopyBy::vectors);
  }
  unstage(operation, index);
  complete(operation, index);
  if (notice.kind != Notice::Kind::answered) return;
  const std::uint32_t answer = operation.way(index).answer;
  complete(operation, answer);
  operation.missing[answer] = 0;  // its message will not come
}

void Driver::take_data(OperationState& operation, const Notice& notice, int member, const std::byte* parcel,
                       bool may_run) {
  const PreparedProgram& program = operation.program();
  if (notice.tag.fingerprint != operation.call().fingerprint) {
    throw_differs(operation.call(), settings_.members[as_index(member)]);
  }
  const std::uint32_t index = program.receive_of(member, notice.tag.message);
  const bool is_known = index != StepWay::none;
  if (!is_known || operation.bytes_of(index) != notice.bytes || operation.arrival(index).data != nullptr) {
    throw_about(operation.call(), ErrorCode::mismatch,
                fmt::format("{}: message {} of {} has {} bytes, expected {}: all ranks must call the same "
                            "collectives with the same counts, types and roots, in the same order{}",
                            describe(operation.call()), notice.tag.message,
                            rank_and_host(settings_.members[as_index(member)]), notice.bytes,
                            is_known ? std::to_string(operation.bytes_of(index)) : "no such message",
                            describe_plan(operation.call())));
  }
  OperationState::Arrival& arrival = operation.arrival(index);
  const std::uint32_t answer = operation.step(index).kind == topology::StepKind::receive_reduce
                                   ? program.way(index).answer
                                   : StepWay::none;
  const bool is_open = notice.kind > Notice::Kind::parcel;
  if (is_open) {
    arrival.data = memory_->at(notice.address, notice.bytes);
    arrival.wants_read = notice.kind != Notice::Kind::copied && notice.kind != Notice::Kind::handed;
    if (notice.kind == Notice::Kind::handed) arrival.turn_block = notice.answer;
    if (notice.kind == Notice::Kind::copied) {
      arrival.unread = unread_flag(notice);
      if (arrival.unread == nullptr) arrival.data = nullptr;
    }
    if (notice.kind == Notice::Kind::lent && answer != StepWay::none &&
        operation.way(answer).message == notice.answer) {
      OperationState::Post& post = operation.post(answer);
      post.is_answer = true;
      post.answers = notice.tag.message;
      post.answer_at = notice.answer_at;
      arrival.wants_read = false;
      if (memory_->at(notice.answer_at, notice.bytes) == nullptr) arrival.data = nullptr;
    }
    if (arrival.data == nullptr) {
      throw_about(operation.call(), ErrorCode::internal,
                  fmt::format("{}: {} names memory that is not shared", describe(operation.call()),
                              rank_and_host(settings_.members[as_index(member)])));
    }
  } else {
    arrival.data = notice.kind == Notice::Kind::here ? notice.inlined.data() : parcel;
  }
  const std::uint32_t first = program.begin_of_run(index);
  if (--operation.missing[first] == 0) {
    if (may_run) return run(operation, first);
    operation.make_ready(first);
  }
  if (is_open || !may_run) return;
  arrival.held = parcels_.take();
  std::memcpy(arrival.held, arrival.data, notice.bytes);
  arrival.data = arrival.held;
}

void Driver::keep_for_later(const MemberLink& link, const Notice& notice) {
  Early& kept = kept_early_.emplace_back(Early{link.peer, notice, nullptr});
  if (notice.kind > Notice::Kind::parcel) return;
  const bool is_here = notice.kind == Notice::Kind::here;
  kept.held = parcels_.take();
  kept.notice.kind = Notice::Kind::parcel;
  std::memcpy(kept.held, is_here ? notice.inlined.data() : link.arrived_parcel(),
              std::min<std::size_t>(notice.bytes, is_here ? Notice::most_inline : parcels_.block_bytes()));
}

void Driver::take_early(OperationState& operation) {
  std::size_t left = 0;
  for (Early& kept : kept_early_) {
    if (find(kept.notice.tag) != &operation) {
      kept_early_[left++] = kept;
      continue;
    }
    take(operation, link(kept.member), kept.notice, kept.held, false);
    if (kept.held != nullptr) {
      operation.arrival(operation.program().receive_of(kept.member, kept.notice.tag.message)).held =
          kept.held;
    }
  }
  kept_early_.erase(kept_early_.begin() + static_cast<std::ptrdiff_t>(left), kept_early_.end());
}

void Driver::acknowledge(OperationState& operation, MemberLink& link, std::uint32_t message,
                         Notice::Kind kind) {
  const MessageTag tag = operation.tag(message);
  if (link.is_full() || !link.outbox.empty()) {
    link.outbox.push_back({nullptr, 0, tag, kind});
    ++waiting_notices_;
    return;
  }
  link.next(tag, kind);
  link.publish();
}

bool Driver::empty_outbox(MemberLink& link) {
  bool moved = false;
  while (!link.outbox.empty() && !link.is_full()) {
    const MemberLink::Waiting waiting = link.outbox.front();
    link.outbox.pop_front();
    --waiting_notices_;
    moved = true;
    if (waiting.operation != nullptr) {
      post_now(*waiting.operation, link, waiting.step);
    } else {
      link.next(waiting.tag, waiting.kind);
      link.publish();
    }
  }
  return moved;
}

}  // namespace ddl::collectives
