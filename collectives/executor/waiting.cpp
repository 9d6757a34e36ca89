#include "collectives/executor/waiting.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "collectives/executor/driver.hpp"
#include "ddl/error.hpp"

namespace ddl::collectives {
namespace {

/// A yield lets a peer on this rank's core run. Waits for the network are long, so they yield less often.
constexpr int yields_before_sleep = 100;
constexpr int yields_before_sleep_with_network = 8;
constexpr std::size_t most_steps_looked_at = 4096;
constexpr std::size_t most_receives_looked_at = 16;
// How often waits call `Meanwhile::look`.
constexpr int spins_between_looks = 64;
constexpr int others_between_looks = 16;

thread_local constinit Meanwhile::Look current = nullptr;

constexpr auto shortest_stay = std::chrono::milliseconds(5);
/// With more members per core every core is busy, and counting them costs more than it gains.
constexpr std::size_t most_members_per_core = 4;

}  // namespace

void Driver::wait(int& idle, bool beside_caller) {
  if (++idle == 1) look_for_company();
  if (idle <= (beside_caller ? std::min(spins_, settings_.spins_beside_caller) : spins_)) {
    pause_briefly();
    if (idle % spins_between_looks == 0) Meanwhile::look();
  } else if (spins_ == 0 && idle <= most_yields()) {
    sched_yield();
    if (idle % others_between_looks == 0) Meanwhile::look();
  } else {
    // sleep() may return early many times, for example while the network makes progress.
    if (idle % others_between_looks == 0) Meanwhile::look();
    sleep();
  }
}

int Driver::most_yields() const noexcept {
  const bool by_network = needs(settings_.network.get()) || needs(settings_.mpi.get());
  return by_network ? yields_before_sleep_with_network : yields_before_sleep;
}

/// Disables spinning, and tries to move away, if a peer is on this rank's core, where it could not run.
void Driver::look_for_company() noexcept {
  if (memory_ == nullptr) return;
  const std::int32_t here = 1 + sched_getcpu();
  MemberState& own = memory_->member(self_);
  if (own.core.load(std::memory_order_relaxed) != here) own.core.store(here, std::memory_order_relaxed);
  const bool alone = std::ranges::none_of(listened_, [&](const MemberLink* link) {
    return memory_->member(link->peer).core.load(std::memory_order_relaxed) == here;
  });
  spins_ = alone ? settings_.spins : 0;
  if (alone) return;
  for (int member = 0; member < memory_->members(); ++member) {
    cores_[as_index(member)] = memory_->member(member).core.load(std::memory_order_relaxed) - 1;
  }
  spreading_.spread(cores_, as_index(self_));
}

/// The network to poll while asleep; MPI first, which cannot wake a thread. Polled even if no operation of
/// this rank uses it, because a peer's send may need progress in this rank's library.
Network* Driver::watched_network() const noexcept {
  if (operations_.empty()) return nullptr;
  return settings_.mpi ? settings_.mpi.get() : settings_.network.get();
}

/// Whether an operation uses `network`.
bool Driver::needs(const Network* network) const noexcept {
  return std::ranges::any_of(operations_, [&](const OperationState* operation) {
    return operation->program().transfers() != 0 && network_of(*operation) == network;
  });
}

/// The least number of rings until there can be something to do.
std::int32_t Driver::rings_needed() const {
  if (operations_.size() != 1 || waiting_notices_ != 0) return 1;
  const OperationState& operation = *operations_.front();
  const PreparedProgram& program = operation.program();
  const auto size = static_cast<std::uint32_t>(program.steps().size());
  if (program.transfers() != 0 || size > most_steps_looked_at) return 1;
  std::uint32_t least = StepWay::none;
  for (std::uint32_t run = 0; run < size; run = program.end_of_run(run)) {
    if (program.step(run).kind == topology::StepKind::send) {
      if (!operation.posts[program.way(run).slot].is_out) continue;
      // An acknowledgement completes the send, and an answer also the receive: a run may wait for it.
      const std::uint32_t answer = program.way(run).answer;
      if (!program.after(answer == StepWay::none ? run : answer).empty()) return 1;
      continue;
    }
    const std::uint32_t missing = operation.missing[run];
    if (missing == 0) continue;
    const std::uint32_t to_come = operation.arrivals_missing(run);
    // A run that also waits for other runs cannot be the next one.
    if (to_come == missing) least = std::min(least, to_come);
  }
  if (least == StepWay::none) least = static_cast<std::uint32_t>(operation.posts_out);
  // A member can ring once per notice at most, and only until its ring is full.
  const std::size_t most = memory_ == nullptr ? 1 : memory_->notices_per_ring();
  return static_cast<std::int32_t>(std::clamp<std::size_t>(least, 1, most));
}

void Driver::sleep() {
  Network* network = watched_network();
  const bool polls = network != nullptr && event_ >= 0 && network->event_descriptor() >= 0;
  const std::uint32_t ticket = bell_->prepare(polls);
  // Check whether peers have left before the last progress(): everything that a peer wrote, it wrote before
  // it left.
  left_before_.clear();
  for (const MemberLink* link : listened_) {
    left_before_.push_back(memory_->member(link->peer).left.load(std::memory_order_seq_cst) != 0);
  }
  if (progress() || !busy() || interrupted_.exchange(false, std::memory_order_seq_cst)) {
    bell_->cancel();
    naps_.reset();
    meanwhile_naps_.reset();
    return;
  }
  if (operations_.empty()) drop_notices_to_nobody();
  if (!busy()) return bell_->cancel();
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
  if ((polls && !network->arm()) || bell_->expect(rings_needed())) return bell_->cancel();
  nap_until(next_deadline(), ticket, polls ? network : nullptr);
}

void Driver::nap_until(Clock::time_point until, std::uint32_t ticket, Network* network) {
  // What cannot wake this thread must be polled.
  if (network == nullptr && watched_network() != nullptr)
    until = std::min(until, Clock::now() + naps_.next());
  if (Meanwhile::wanted()) {
    Meanwhile::look();
    until = std::min(until, Clock::now() + meanwhile_naps_.next());
  }
  if (network == nullptr) return bell_->sleep(ticket, until);
  std::array<pollfd, 2> events{pollfd{event_, POLLIN, 0}, pollfd{network->event_descriptor(), POLLIN, 0}};
  poll_until(events, until);
  bell_->cancel();
  if (events[0].revents != 0) clear_event(event_);
}

/// Drops acknowledgements to members that have left, or to all if the job has failed: nobody reads them.
void Driver::drop_notices_to_nobody() {
  const bool failed = settings_.watch && settings_.watch->failed();
  for (const std::unique_ptr<MemberLink>& link : links_) {
    if (!link || (!failed && memory_->member(link->peer).left.load(std::memory_order_seq_cst) == 0)) continue;
    waiting_notices_ -= link->outbox.size();
    link->outbox.clear();
  }
}

void Driver::check_peers() {
  if (operations_.empty()) return;
  const Call& call = operations_.front()->call();
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
  for (std::size_t i = 0; i < left_before_.size() && i < listened_.size(); ++i) {
    if (!left_before_[i]) continue;
    for (const OperationState* operation : operations_) {
      each_awaited(*operation, [&](int rank, std::uint32_t, const char*) {
        if (rank != listened_[i]->rank) return;
        throw_about(
            operation->call(), ErrorCode::peer_failed,
            fmt::format("{}: {} has left the job; all ranks must call the same collectives{}",
                        describe(operation->call()), rank_and_host(rank), describe_plan(operation->call())));
      });
    }
  }
}

/// Detects messages from ranks that called something else; they match no receive.
void Driver::look_for_others(const OperationState& operation) {
  if (operation.call().compares) return;  // peers may be past the comparison
  const std::size_t looked_at = std::min(operation.transferring.size(), most_receives_looked_at);
  for (std::size_t i = 0; i < looked_at; ++i) {
    const std::uint32_t index = operation.transferring[i];
    const StepWay& way = operation.way(index);
    if (operation.step(index).kind == topology::StepKind::send) continue;
    if (network_of(operation)->has_other(way.peer, operation.tag(way.message))) {
      throw_differs(operation.call(), way.peer);
    }
  }
}

/// Compares a call with those that the awaited ranks of this host have recorded under its number. Messages of
/// different calls may never meet, for instance while one rank still compares plans.
void Driver::compare_with_host(const OperationState& operation) {
  const CallId& mine = operation.call().id;
  each_awaited(operation, [&](int rank, std::uint32_t, const char*) {
    const auto member = std::ranges::find(settings_.members, rank);
    if (member == settings_.members.end()) return;
    const FlightTape& tape = memory_->tape(static_cast<int>(member - settings_.members.begin()));
    for (const FlightRecord& record : recorder_.records_of(tape)) {
      if (record.communicator != mine.communicator || record.sequence != mine.sequence) continue;
      if (record.describe() != mine.describe()) throw_differs(operation.call(), rank);
    }
  });
}

void Driver::check_deadlines() {
  const Clock::time_point now = Clock::now();
  for (OperationState* operation : operations_) {
    if (now >= operation->until) throw_timeout(*operation);
    if (now < operation->compare_at) continue;
    operation->compare_at = now + (now - operation->started);
    compare_with_host(*operation);
  }
}

Clock::time_point Driver::next_deadline() const {
  Clock::time_point next = Clock::time_point::max();
  for (const OperationState* operation : operations_) {
    next = std::min({next, operation->until, operation->compare_at});
    if (operation->sent_by) next = std::min(next, *operation->sent_by);
  }
  return next;
}

Meanwhile::Meanwhile(Look at) noexcept : before_(std::exchange(current, at)) {}
Meanwhile::~Meanwhile() { current = before_; }

bool Meanwhile::wanted() noexcept { return current != nullptr; }
void Meanwhile::look() {
  if (current != nullptr) current();
}

int CoreSpreading::better_core(const std::vector<int>& allowed, const std::vector<int>& cores,
                               std::size_t self) noexcept {
  const int own = cores[self];
  const auto members_on = [&](int core) { return std::ranges::count(cores, core); };
  const bool later_one_is_here =
      std::find(cores.begin() + static_cast<std::ptrdiff_t>(self) + 1, cores.end(), own) != cores.end();
  if (own < 0 || later_one_is_here) return -1;
  int best = own;
  for (const int core : allowed) {
    if (members_on(core) < members_on(best)) best = core;
  }
  return members_on(own) - members_on(best) >= 2 ? best : -1;
}

void CoreSpreading::spread(const std::vector<int>& cores, std::size_t self) noexcept {
  if (allowed_.size() < 2 || cores.size() > most_members_per_core * allowed_.size()) return;
  const Clock::time_point now = Clock::now();
  if (now < next_) return;
  next_ = now + shortest_stay;
  const int core = better_core(allowed_, cores, self);
  cpu_set_t usual;
  if (core < 0 || sched_getaffinity(0, sizeof usual, &usual) != 0 || !CPU_ISSET(core, &usual)) return;
  cpu_set_t there;
  CPU_ZERO(&there);
  CPU_SET(core, &there);
  if (sched_setaffinity(0, sizeof there, &there) == 0) sched_setaffinity(0, sizeof usual, &usual);
}

}  // namespace ddl::collectives
