// Messages between members of a host.

#include <fmt/format.h>

#include <cstring>

#include "collectives/engine/driver.hpp"
#include "ddl/error.hpp"

namespace ddl::collectives {
namespace {

MessageTag tag_of(const Notice& notice) { return {notice.communicator, notice.call, notice.message}; }

void copy_notice(Notice& to, const Notice& from) {
  to.communicator = from.communicator;
  to.call = from.call;
  to.message = from.message;
  to.bytes = from.bytes;
  to.fingerprint = from.fingerprint;
  to.kind = from.kind;
  to.answer = from.answer;
  to.inlined = from.inlined;
}

}  // namespace

bool Driver::drain() {
  bool moved = false;
  if (waiting_notices_ != 0) {
    // Operations that have ended leave some, too.
    for (const std::unique_ptr<Link>& link : links_) {
      if (link && !link->outbox.empty() && empty_outbox(*link)) moved = true;
    }
  }
  // By index: an operation that ends takes links away.
  for (std::size_t i = 0; i < listened_.size(); ++i) {
    if (drain(*listened_[i])) moved = true;
  }
  return moved;
}

bool Driver::drain(Link& link) {
  bool moved = false;
  for (const Notice* notice = link.arrived(); notice != nullptr; notice = link.arrived()) {
    moved = true;
    if (OperationState* operation = find(tag_of(*notice))) {
      take(*operation, link, *notice, link.arrived_parcel(), true);
    } else {
      check_comparison(link, *notice);
      keep_for_later(link, *notice);
    }
    link.drop();
  }
  link.make_room();
  return moved;
}

/// All messages of a comparison are taken before its call begins: one that comes later is of a rank that
/// calls something else, for the first time.
void Driver::check_comparison(const Link& link, const Notice& notice) {
  if (!Call::is_comparison(notice.communicator)) return;
  const MessageTag call{Call::channel_of_calls(notice.communicator), notice.call, 0};
  const OperationState* const operation = find(call);
  if (operation != nullptr) throw_differs(operation->call, link.rank);
}

void Driver::take(OperationState& operation, Link& link, const Notice& notice, const std::byte* parcel,
                  bool may_run) {
  if (notice.kind != Notice::Kind::read && notice.kind != Notice::Kind::answered) {
    return take_data(operation, notice, link.peer, parcel, may_run);
  }
  const std::uint32_t index = operation.program().post_of(link.peer, notice.message);
  if (index == Task::none || !operation.posts[index].is_out) {
    throw_about(operation.call, ErrorCode::internal,
                fmt::format("{}: {} acknowledges message {}, which it was not sent", describe(operation.call),
                            rank_and_host(link.rank), notice.message));
  }
  operation.posts[index].is_out = false;
  --operation.posts_out;
  const Task& post = operation.task(index);
  if (notice.kind == Notice::Kind::answered && operation.posts[index].staging != nullptr) {
    std::memcpy(operation.target(post.begin), operation.posts[index].staging, operation.bytes_of(post));
  }
  unstage(operation, index);
  complete(operation, index);
  if (notice.kind != Notice::Kind::answered) return;
  complete(operation, post.partner);
  operation.missing[post.partner] = 0;  // its message is not waited for any more
}

void Driver::take_data(OperationState& operation, const Notice& notice, int member, const std::byte* parcel,
                       bool may_run) {
  const PreparedProgram& program = operation.program();
  if (notice.fingerprint != operation.call.fingerprint) {
    throw_differs(operation.call, settings_.members[static_cast<std::size_t>(member)]);
  }
  const std::uint32_t index = program.input_of(member, notice.message);
  const Task* task = index == Task::none ? nullptr : &program.tasks()[program.inputs()[index].task];
  if (task == nullptr || operation.bytes_of(*task) != notice.bytes ||
      operation.arrivals[index].data != nullptr) {
    throw_about(operation.call, ErrorCode::mismatch,
                fmt::format("{}: message {} of {} has {} bytes, expected {}: all ranks must call the same "
                            "collectives with the same counts, types and roots, in the same order{}",
                            describe(operation.call), notice.message,
                            rank_and_host(settings_.members[static_cast<std::size_t>(member)]), notice.bytes,
                            task == nullptr ? "no such message" : std::to_string(operation.bytes_of(*task)),
                            describe_plan(operation.call)));
  }
  const Input& input = program.inputs()[index];
  OperationState::Arrival& arrival = operation.arrivals[index];
  const bool is_open = notice.kind == Notice::Kind::open || notice.kind == Notice::Kind::lent;
  if (is_open) {
    arrival.data = memory_->at(notice.address, notice.bytes);
    arrival.wants_read = true;
    if (notice.kind == Notice::Kind::lent && input.answer != Task::none &&
        operation.task(input.answer).message == notice.answer) {
      OperationState::Post& answer = operation.posts[input.answer];
      answer.is_answer = true;
      answer.answers = notice.message;
      answer.answer_at = notice.answer_at;
      arrival.wants_read = false;
      if (memory_->at(notice.answer_at, notice.bytes) == nullptr) arrival.data = nullptr;
    }
    if (arrival.data == nullptr) {
      throw_about(operation.call, ErrorCode::internal,
                  fmt::format("{}: {} names memory that is not shared", describe(operation.call),
                              rank_and_host(settings_.members[static_cast<std::size_t>(member)])));
    }
  } else {
    arrival.data = notice.kind == Notice::Kind::here ? notice.inlined.data() : parcel;
  }
  if (--operation.missing[input.task] == 0) {
    if (may_run) return run(operation, input.task);
    operation.make_ready(input.task);
  }
  if (is_open || !may_run) return;
  arrival.held = parcels_.take();
  std::memcpy(arrival.held, arrival.data, notice.bytes);
  arrival.data = arrival.held;
}

void Driver::keep_for_later(const Link& link, const Notice& notice) {
  if (free_early_.empty()) {
    early_.push_back(std::make_unique<Early>());
    free_early_.reserve(early_.size());
    kept_early_.reserve(early_.size());
    free_early_.push_back(early_.back().get());
  }
  Early& kept = *free_early_.back();
  free_early_.pop_back();
  kept.member = link.peer;
  copy_notice(kept.notice, notice);
  if (notice.kind == Notice::Kind::parcel) {
    kept.held = parcels_.take();
    std::memcpy(kept.held, link.arrived_parcel(),
                std::min<std::size_t>(notice.bytes, parcels_.block_bytes()));
  }
  kept_early_.push_back(&kept);
}

/// What came for an operation before it began.
void Driver::take_early(OperationState& operation) {
  if (kept_early_.empty()) return;
  std::size_t left = 0;
  for (std::size_t i = 0; i < kept_early_.size(); ++i) {
    Early* kept = kept_early_[i];
    if (find(tag_of(kept->notice)) != &operation) {
      kept_early_[left++] = kept;
      continue;
    }
    if (kept->notice.kind == Notice::Kind::here) {
      kept->held = parcels_.take();
      std::memcpy(kept->held, kept->notice.inlined.data(), Notice::most_inline);
      kept->notice.kind = Notice::Kind::parcel;
    }
    take(operation, link(kept->member), kept->notice, kept->held, false);
    if (kept->held != nullptr) {
      operation.arrivals[operation.program().input_of(kept->member, kept->notice.message)].held = kept->held;
    }
    kept->held = nullptr;
    free_early_.push_back(kept);
  }
  kept_early_.resize(left);
}

void Driver::announce_bytes(Link& link, const Call& call, std::uint32_t message, const std::byte* data,
                            std::size_t bytes) {
  Notice& notice = link.next();
  notice.communicator = call.channel();
  notice.call = static_cast<std::uint16_t>(call.sequence);
  notice.message = message;
  notice.bytes = static_cast<std::uint32_t>(bytes);
  notice.fingerprint = call.fingerprint;
  if (bytes <= Notice::most_inline) {
    notice.kind = Notice::Kind::here;
    std::memcpy(notice.inlined.data(), data, bytes);
  } else {
    notice.kind = Notice::Kind::parcel;
    std::memcpy(link.next_parcel(), data, bytes);
  }
  link.publish();
}

void Driver::acknowledge(OperationState& operation, Link& link, std::uint32_t message, Notice::Kind kind) {
  const MessageTag tag = operation.tag(message);
  if (link.is_full() || !link.outbox.empty()) {
    link.outbox.push_back({nullptr, 0, tag, kind});
    ++waiting_notices_;
    return;
  }
  Notice& notice = link.next();
  notice.communicator = tag.communicator;
  notice.call = tag.call;
  notice.message = tag.message;
  notice.bytes = 0;
  notice.kind = kind;
  link.publish();
}

bool Driver::empty_outbox(Link& link) {
  bool moved = false;
  while (!link.outbox.empty() && !link.is_full()) {
    const Link::Waiting waiting = link.outbox.front();
    link.outbox.pop_front();
    --waiting_notices_;
    moved = true;
    if (waiting.operation != nullptr) {
      post_now(*waiting.operation, link, waiting.task);
      continue;
    }
    Notice& notice = link.next();
    notice.communicator = waiting.tag.communicator;
    notice.call = waiting.tag.call;
    notice.message = waiting.tag.message;
    notice.bytes = 0;
    notice.kind = waiting.kind;
    link.publish();
  }
  return moved;
}

}  // namespace ddl::collectives
