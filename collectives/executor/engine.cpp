#include "collectives/executor/engine.hpp"

#include <algorithm>

#include "collectives/executor/driver.hpp"
#include "collectives/executor/waiting.hpp"
#include "topology/refuse.hpp"

namespace ddl::collectives {
namespace {

/// Limit for a communicator's calls in flight: far below what the 16-bit call number of a tag tells apart.
constexpr std::uint64_t most_calls = 64;

Ways ways_of(const EngineSettings& settings, bool mpi_alone) {
  Ways ways{std::vector<int>(as_index(settings.map.ranks()), Ways::no_member), mpi_alone,
            topology::message_bytes};
  for (std::size_t i = 0; i < settings.members.size(); ++i) {
    ways.member[as_index(settings.members[i])] = static_cast<int>(i);
  }
  return ways;
}

/// How often the engine's thread polls the network after a call, until data of finished calls has left. It
/// rarely finds any (a socket was full), and to find out costs too much for every call.
constexpr Naps naps_between_looks() noexcept {
  return {std::chrono::milliseconds(5), 4, std::chrono::milliseconds(50)};
}

/// The error code for the job's first failure on a rank whose own error has code `own`.
ErrorCode code_for(const JobFailure& failure, ErrorCode own) {
  switch (failure.kind) {
    case JobFailure::Kind::died:
      return ErrorCode::peer_failed;
    case JobFailure::Kind::stuck:
      return ErrorCode::timeout;
    case JobFailure::Kind::differs:
      return ErrorCode::mismatch;
    case JobFailure::Kind::threw:
    case JobFailure::Kind::network:
      break;
  }
  return own;
}

/// Adds the report to a rank's own error: one line if rank 0 writes the report.
std::string explained(const Error& error, const ExitReport& report, bool is_written_elsewhere) {
  const std::string own = error.what();
  const bool is_said = own.find(report.failure.text) != own.npos;
  if (is_written_elsewhere && report.scope.empty()) {
    // Ranks whose calls differ all say so, each of its own call.
    const bool is_same =
        report.failure.kind == JobFailure::Kind::differs && error.code() == ErrorCode::mismatch;
    const bool is_enough = is_said || is_same;
    return fmt::format("{}{}{} (rank 0 writes the report)", own, is_enough ? "" : "; ",
                       is_enough ? "" : report.failure.text);
  }
  std::string text = report.text();
  if (is_said) text.erase(0, report.failure.text.size());
  const bool goes_on = text.empty() || text.front() == '\n' || text.front() == ' ';
  return own + (goes_on ? "" : "\n") + text;
}

bool is_for_any_thread(const Network* network) { return network == nullptr || network->any_thread(); }

}  // namespace

inline bool Engine::has_work() const {
  return driver_->busy() || queued_.load(std::memory_order_acquire) != 0;
}

Engine::Engine(EngineSettings settings)
    : settings_(std::move(settings)),
      ways_(ways_of(settings_, false)),
      mpi_ways_(ways_of(settings_, true)),
      has_thread_(is_for_any_thread(settings_.network.get()) && is_for_any_thread(settings_.mpi.get())),
      recorder_(settings_.memory && member() != Ways::no_member ? &settings_.memory->tape(member())
                                                                : nullptr),
      driver_(std::make_unique<Driver>(settings_, recorder_, has_thread_)) {
  if (settings_.watch) settings_.watch->attach(recorder_, [this] { driver_->interrupt(); });
}

Engine::~Engine() {
  if (closed_) return;
  failed_ = true;  // so that close() waits for nothing
  close();
}

std::shared_ptr<void> Engine::allocate(std::size_t bytes) const {
  return memory() == nullptr ? process_memory(bytes) : memory()->allocate(member(), bytes);
}

void Engine::run(Call&& call) {
  require_usable(call.id.name);
  std::unique_lock hold(token_, std::try_to_lock);
  if (!hold) {
    if (has_thread_) return enqueue(call)->wait();
    hold.lock();
  }
  run_here(call);
  hand_over();
}

void Engine::run_here(Call& call) {
  OperationState* operation = nullptr;
  try {
    operation = driver_->run_small(call);
    if (operation != nullptr) drive([&] { return operation->done && !driver_->must_flush(); });
  } catch (const Error& error) {
    throw Error(fail(error));
  }
  if (operation == nullptr) {
    const FlightRecorder::Times times = recorder_.over(call.record, false);
    if (settings_.run) driver_->note_small(times);
    return;
  }
  if (operation->failed) {  // a continuation failed the engine
    const std::lock_guard lock(mutex_);
    throw Error(*failure_);
  }
  if (settings_.run) settings_.run->statistics().waited(Ticks::now() - operation->begun);
  driver_->give_back(*operation);
}

std::shared_ptr<WorkState> Engine::start(const Call& call) {
  require_usable(call.id.name);
  return enqueue(call);
}

std::shared_ptr<WorkState> Engine::enqueue(const Call& call) {
  std::shared_ptr<WorkState> work = new_work();
  {
    const std::lock_guard lock(mutex_);
    if (failure_) {
      const Error error = *failure_;
      work->finish(error);
      return work;
    }
    queue_.push_back({call, work});
    queue_.back().call.enter(recorder_);
    queued_.store(queue_.size(), std::memory_order_release);
    start_thread();
  }
  changed_.notify_one();
  driver_->interrupt();
  return work;
}

std::shared_ptr<WorkState> Engine::new_work() {
  if (has_thread_) return std::make_shared<WorkState>(nullptr, settings_.run);
  return std::make_shared<WorkState>(
      [this](const WorkState& wanted, bool until_done) { help(wanted, until_done); }, settings_.run);
}

// Driving calls. The caller holds the token.

/// Begins queued calls. Beginning a call may fail the engine, because messages that arrived early may be of
/// another call; another thread may fail it too. The remaining calls then end with the queue.
void Engine::take_queue() {
  while (queued_.load(std::memory_order_acquire) != 0) {
    const std::optional<Queued> next = next_queued();
    if (!next) return;
    driver_->begin(next->call, next->work);
    if (failed_) return;
  }
}

/// Removes and returns the first queued call that may begin.
std::optional<Engine::Queued> Engine::next_queued() {
  const std::lock_guard lock(mutex_);
  const auto next = std::ranges::find_if(queue_, [&](const Queued& entry) {
    const std::uint64_t oldest = driver_->oldest_call(entry.call.communicator);
    return oldest + most_calls > entry.call.sequence || oldest > entry.call.sequence;
  });
  if (next == queue_.end()) return {};
  std::optional<Queued> taken = std::move(*next);
  queue_.erase(next);
  queued_.store(queue_.size(), std::memory_order_release);
  return taken;
}

/// Makes progress until `is_over`. `beside_caller`: in the engine's own thread.
template <typename IsOver>
void Engine::drive(const IsOver& is_over, bool beside_caller) {
  int idle = 0;
  for (;;) {
    take_queue();
    const bool moved = driver_->progress();
    if (is_over()) return;
    if (moved) {
      idle = 0;
    } else {
      driver_->wait(idle, beside_caller);
    }
  }
}

/// Leaves unfinished work to the engine's thread.
template <typename Action>
bool Engine::attempt(const Action& action) {
  try {
    action();
    return true;
  } catch (const Error& error) {
    fail(error);
    return false;
  }
}

void Engine::hand_over() {
  const bool has_rest = has_work();
  const bool must_look = has_thread_ && driver_->may_hold_back();
  if (!has_rest && !must_look) return;
  bool wakes = has_rest;
  {
    const std::lock_guard lock(mutex_);
    ++hand_overs_;
    left_over_ = left_over_ || has_rest;
    if (must_look && !std::exchange(looking_, true)) wakes = true;
    start_thread();
  }
  if (wakes) changed_.notify_one();
}

// The engine's thread.

/// Caller holds the mutex.
void Engine::start_thread() {
  if (has_thread_ && !stopping_ && !thread_.joinable()) thread_ = std::thread([this] { work(); });
}

void Engine::work() {
  Naps naps = naps_between_looks();
  std::uint64_t seen = 0;  // hand_overs_ at the last turn
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto is_wanted = [&] { return stopping_ || left_over_ || !queue_.empty(); };
    if (!looking_) {
      naps.reset();
      changed_.wait(lock, [&] { return is_wanted() || looking_; });
    }
    if (looking_) changed_.wait_for(lock, naps.next(), is_wanted);
    if (stopping_) return;
    const bool drives = is_wanted();
    if (drives || std::exchange(seen, hand_overs_) != hand_overs_) naps.reset();
    left_over_ = false;
    lock.unlock();
    std::unique_lock hold(token_, std::defer_lock);
    if (drives) {
      hold.lock();
    } else {
      static_cast<void>(hold.try_lock());
    }
    const bool goes_on = hold && go_on(drives);
    lock.lock();
    // Another holder of the token makes progress itself, and hands over when it is done if it has not yet.
    if (hold || hand_overs_ == seen) looking_ = goes_on;
  }
}

/// Drives all calls, or else polls once. Returns whether to keep polling. Caller holds the token.
bool Engine::go_on(bool drives) {
  return attempt([&] {
           if (drives) return drive([&] { return !has_work(); }, true);
           if (!failed_) driver_->progress();
         }) &&
         !failed_ && driver_->holds_back();
}

// Other callers that make progress.

void Engine::help(const WorkState& wanted, bool until_done) {
  const std::lock_guard hold(token_);
  if (closed_ || failed_) return;
  attempt([&] {
    if (until_done) return drive([&] { return wanted.done() && !driver_->must_flush(); });
    take_queue();
    driver_->progress();
  });
}

void Engine::progress() {
  if (closed_ || failed_) return;
  const std::unique_lock hold(token_, std::try_to_lock);
  if (hold && attempt([&] { driver_->progress(); })) hand_over();
}

void Engine::drain() {
  if (closed_ || failed_) return;
  const std::lock_guard hold(token_);
  attempt([&] { drive([&] { return !has_work(); }); });
}

void Engine::close() {
  if (closed_) return;
  drain();
  if (!failed_) {
    const std::lock_guard hold(token_);
    attempt([&] { driver_->leave(); });
  }
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  driver_->interrupt();
  if (thread_.joinable()) thread_.join();
  closed_ = true;
  if (settings_.watch) settings_.watch->detach();
  if (failed_) driver_->abandon();
  // Transfers of failed operations may still use the driver's memory, so the networks are destroyed first.
  settings_.network.reset();
  settings_.mpi.reset();
  driver_.reset();
}

// Failures.

void Engine::refuse(const CallName& name) const {
  if (closed_) {
    fail_with(ErrorCode::transport, "{}: this communicator's context has been destroyed", name.view());
  }
  throw failed_before(name);
}

Error Engine::failed_before(const CallName& name) const {
  const std::lock_guard lock(mutex_);
  if (!failure_)
    return {ErrorCode::transport, fmt::format("{}: this rank has already given up", name.view())};
  const std::string_view first = failure_->what();
  return {failure_->code(), fmt::format("{}: the job has failed before; restart it. The first failure: {}",
                                        name.view(), first.substr(0, first.find('\n')))};
}

/// Fails the engine and all its calls because of an error of the driver. Returns the first failure with the
/// watch's report. Caller holds the token.
Error Engine::fail(const Error& error) {
  const Driver::About& about = driver_->about();
  return fail(error, about.call, about.brief);
}

/// `brief`: the text for the other ranks; empty for the error's.
Error Engine::fail(const Error& error, const CallId& call, const std::string& brief) {
  failed_ = true;  // no further call begins
  const Error full = settings_.watch ? examined(error, call, brief) : error;
  if (settings_.on_failure) settings_.on_failure(recorder_.records());
  std::deque<Queued> dropped;
  Error first = full;
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = full;
    first = *failure_;
    dropped.swap(queue_);
    queued_ = 0;
  }
  driver_->fail(first);
  for (Queued& entry : dropped) {
    recorder_.over(entry.call.record, true);
    entry.work->finish(first);
  }
  return first;
}

/// Tells the other ranks, and waits for their reports.
Error Engine::examined(const Error& error, const CallId& call, const std::string& brief) const {
  Watch& watch = *settings_.watch;
  watch.stopped(driver_->describe_awaited());
  watch.announce({failure_kind(error.code()), rank(), brief.empty() ? error.what() : brief, call.communicator,
                  call.sequence});
  const ExitReport report = watch.report();
  return {code_for(report.failure, error.code()), explained(error, report, watch.is_reported_by_root())};
}

/// After a failure, whether this thread holds the token; in a continuation it already does. With a watch the
/// holder releases it once the failure is announced; without one it may never do so, hence try_lock.
bool Engine::get_token(std::unique_lock<Token>& hold) {
  if (token_.is_mine()) return true;
  if (!settings_.watch) return hold.try_lock();
  hold.lock();
  return true;
}

void Engine::announce(const Error& error, const CallId& call) {
  if (closed_ || !settings_.watch) return;
  settings_.watch->announce(
      {failure_kind(error.code()), rank(), error.what(), call.communicator, call.sequence});
}

Error Engine::give_up(const Error& error, const CallId& call) {
  if (closed_) return error;
  failed_ = true;
  announce(error, call);
  std::unique_lock hold(token_, std::defer_lock);
  if (!get_token(hold)) return error;
  return fail(error, call, {});
}

void Engine::announce_failure(const std::string& why) {
  if (closed_) return;
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = Error(ErrorCode::transport, why);
  }
  if (settings_.watch) {
    settings_.watch->announce(
        {JobFailure::Kind::threw, rank(),
         fmt::format("rank {} (host {}) gave up: {}", rank(), map().short_name(map().host_of(rank())), why),
         0, 0});
  }
  std::unique_lock hold(token_, std::defer_lock);
  if (get_token(hold)) driver_->abandon();
}

}  // namespace ddl::collectives
