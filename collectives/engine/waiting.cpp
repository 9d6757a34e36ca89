// What a rank does while there is nothing to do.

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>

#include "collectives/engine/driver.hpp"
#include "collectives/engine/each_awaited.hpp"
#include "collectives/engine/pause.hpp"
#include "ddl/error.hpp"

namespace ddl::collectives {
namespace {

/// A peer on this rank's core is let run; one that waits for the network itself is not soon done.
constexpr int yields_before_sleep = 100;
constexpr int yields_before_sleep_with_network = 8;
constexpr std::size_t most_tasks_looked_at = 4096;
constexpr std::size_t most_receives_looked_at = 16;
// At what only concerns this thread's caller.
constexpr int spins_between_looks = 64;
constexpr int others_between_looks = 16;

}  // namespace

void Driver::wait(int& idle) {
  if (++idle == 1) look_for_company();
  if (idle <= spins_) {
    pause_briefly();
    if (idle % spins_between_looks == 0) Meanwhile::look();
  } else if (spins_ == 0 && idle <= most_yields()) {
    sched_yield();
    if (idle % others_between_looks == 0) Meanwhile::look();
  } else {
    // Something may keep it from falling asleep for long, such as a network that has more to do.
    if (idle % others_between_looks == 0) Meanwhile::look();
    sleep();
  }
}

int Driver::most_yields() const noexcept {
  const bool by_network = needs(settings_.network.get()) || needs(settings_.mpi.get());
  return by_network ? yields_before_sleep_with_network : yields_before_sleep;
}

/// Spinning would keep a peer that is on this rank's core from ever coming.
void Driver::look_for_company() noexcept {
  if (memory_ == nullptr) return;
  const std::int32_t here = 1 + sched_getcpu();
  MemberState& own = memory_->member(self_);
  if (own.core.load(std::memory_order_relaxed) != here) own.core.store(here, std::memory_order_relaxed);
  const bool alone = std::ranges::none_of(listened_, [&](const Link* link) {
    return memory_->member(link->peer).core.load(std::memory_order_relaxed) == here;
  });
  spins_ = alone ? settings_.spins : 0;
  if (alone) return;
  for (int member = 0; member < memory_->members(); ++member) {
    cores_[static_cast<std::size_t>(member)] =
        memory_->member(member).core.load(std::memory_order_relaxed) - 1;
  }
  spreading_.spread(cores_, static_cast<std::size_t>(self_));
}

/// What to look at while asleep: MPI, which cannot wake anyone, before any other. Also where no operation of
/// this rank needs it: a peer's send may not be over before this rank's library has moved on once more.
Network* Driver::watched_network() const noexcept {
  if (operations_.empty()) return nullptr;
  return settings_.mpi ? settings_.mpi.get() : settings_.network.get();
}

/// Whether some operation waits for it.
bool Driver::needs(const Network* network) const noexcept {
  return std::ranges::any_of(operations_, [&](const OperationState* operation) {
    return operation->program().net_tasks() != 0 && network_of(*operation) == network;
  });
}

/// How many rings it takes at least until there is something to do.
std::int32_t Driver::rings_needed() const {
  if (operations_.size() != 1 || waiting_notices_ != 0) return 1;
  const OperationState& operation = *operations_.front();
  const PreparedProgram& program = operation.program();
  const std::span<const Task> tasks = program.tasks();
  if (program.net_tasks() != 0 || tasks.size() > most_tasks_looked_at) return 1;
  std::uint32_t least = Task::none;
  for (std::uint32_t i = 0; i < tasks.size(); ++i) {
    const Task& task = tasks[i];
    const std::uint32_t missing = operation.missing[i];
    if (task.kind == Task::Kind::post) {
      if (!operation.posts[i].is_out) continue;
      // Its answer may come in the place of the post's partner; then nothing else may wait for it.
      const std::uint32_t last = task.partner == Task::none ? i : task.partner;
      if (!program.after(last).empty()) return 1;
      continue;
    }
    if (missing == 0 || task.inputs_begin == task.inputs_end) continue;
    std::uint32_t to_come = 0;
    for (std::uint32_t k = task.inputs_begin; k < task.inputs_end; ++k) {
      if (operation.arrivals[k].data == nullptr) ++to_come;
    }
    // What waits for other tasks as well cannot be the next one.
    if (to_come == missing) least = std::min(least, to_come);
  }
  if (least == Task::none) least = static_cast<std::uint32_t>(operation.posts_out);
  // A member whose ring is full cannot ring any more.
  const std::size_t most = memory_ == nullptr ? 1 : memory_->notices_per_ring();
  return static_cast<std::int32_t>(std::clamp<std::size_t>(least, 1, most));
}

void Driver::sleep() {
  Network* network = watched_network();
  const bool polls = network != nullptr && event_ >= 0 && network->event_descriptor() >= 0;
  const std::uint32_t ticket = bell_->prepare(polls);
  // Whether a peer has left is asked before the last look: what it wrote, it wrote before it left.
  had_left_.clear();
  for (const Link* link : listened_) {
    had_left_.push_back(memory_->member(link->peer).left.load(std::memory_order_seq_cst) != 0);
  }
  if (progress() || !busy() || interrupted_.exchange(false, std::memory_order_seq_cst)) {
    bell_->cancel();
    naps_.reset();
    meanwhile_naps_.reset();
    return;
  }
  if (operations_.empty()) drop_notices_to_nobody();
  if (!busy()) {
    bell_->cancel();
    return;
  }
  for (OperationState* operation : operations_) {
    if (!stage_more(*operation, true)) continue;
    bell_->cancel();
    return;
  }
  try {
    check_peers();
    check_deadlines();
  } catch (...) {
    bell_->cancel();
    throw;
  }
  if ((polls && !network->arm()) || bell_->expect(rings_needed())) {
    bell_->cancel();
    return;
  }
  nap_until(next_deadline(), ticket, polls ? network : nullptr);
}

void Driver::nap_until(Clock::time_point until, std::uint32_t ticket, Network* network) {
  // What cannot wake this thread is looked at again and again.
  if (network == nullptr && watched_network() != nullptr)
    until = std::min(until, Clock::now() + naps_.next());
  if (Meanwhile::wanted()) {
    Meanwhile::look();
    until = std::min(until, Clock::now() + meanwhile_naps_.next());
  }
  if (network == nullptr) {
    bell_->sleep(ticket, until);
    return;
  }
  std::array<pollfd, 2> events{pollfd{event_, POLLIN, 0}, pollfd{network->event_descriptor(), POLLIN, 0}};
  timespec timeout{};
  if (until != Clock::time_point::max()) {
    const auto left = std::max(until - Clock::now(), Clock::duration::zero());
    const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
    timeout = {seconds.count(), std::chrono::nanoseconds(left - seconds).count()};
  }
  ppoll(events.data(), events.size(), until == Clock::time_point::max() ? nullptr : &timeout, nullptr);
  bell_->cancel();
  if ((events[0].revents & POLLIN) != 0) {
    std::uint64_t rings = 0;
    static_cast<void>(!read(event_, &rings, sizeof rings));
  }
}

/// Who has left, or is to end with the job, reads no more that its messages were read.
void Driver::drop_notices_to_nobody() {
  const bool failed = settings_.watch && settings_.watch->failed();
  for (const std::unique_ptr<Link>& link : links_) {
    if (!link || (!failed && memory_->member(link->peer).left.load(std::memory_order_seq_cst) == 0)) continue;
    waiting_notices_ -= link->outbox.size();
    link->outbox.clear();
  }
}

void Driver::check_peers() {
  if (operations_.empty()) return;
  const Call& call = operations_.front()->call;
  if (settings_.watch && settings_.watch->failed()) {
    throw_about(call, ErrorCode::peer_failed,
                fmt::format("{}: {}", describe(call), settings_.watch->failure().text));
  }
  for (const Network* network : {settings_.network.get(), settings_.mpi.get()}) {
    if (network == nullptr || network->failed_peer() < 0 || !needs(network)) continue;
    throw_about(call, ErrorCode::peer_failed,
                fmt::format("{}: the connection to {} broke: {}", describe(call),
                            rank_and_host(network->failed_peer()), network->failure()));
  }
  for (const OperationState* operation : operations_) look_for_others(*operation);
  for (std::size_t i = 0; i < had_left_.size() && i < listened_.size(); ++i) {
    if (!had_left_[i]) continue;
    for (const OperationState* operation : operations_) {
      each_awaited(*operation, [&](int rank, const Task&, const char*) {
        if (rank != listened_[i]->rank) return;
        throw_about(
            operation->call, ErrorCode::peer_failed,
            fmt::format("{}: {} has left the job; all ranks must call the same collectives{}",
                        describe(operation->call), rank_and_host(rank), describe_plan(operation->call)));
      });
    }
  }
}

/// Messages through the network of ranks that have called something else: they match no receive.
void Driver::look_for_others(const OperationState& operation) {
  if (operation.call.compares) return;  // the others' calls may have begun
  const std::size_t looked_at = std::min(operation.transferring.size(), most_receives_looked_at);
  for (std::size_t i = 0; i < looked_at; ++i) {
    const Task& task = operation.task(operation.transferring[i]);
    if (task.kind == Task::Kind::net_send) continue;
    if (network_of(operation)->has_other(task.peer, operation.tag(task.message))) {
      throw_differs(operation.call, task.peer);
    }
  }
}

void Driver::check_deadlines() {
  const Clock::time_point now = Clock::now();
  for (const OperationState* operation : operations_) {
    if (now >= operation->until) throw_timeout(*operation);
  }
}

Clock::time_point Driver::next_deadline() const {
  Clock::time_point next = Clock::time_point::max();
  for (const OperationState* operation : operations_) {
    next = std::min(next, operation->until);
    if (operation->flush_until) next = std::min(next, *operation->flush_until);
  }
  return next;
}

}  // namespace ddl::collectives
