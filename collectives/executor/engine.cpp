#include "collectives/executor/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "collectives/executor/driver.hpp"
#include "collectives/executor/waiting.hpp"
#include "ddl/error.hpp"
#include "ddl/topology/program.hpp"
#include "topology/program/passes.hpp"

namespace ddl::collectives {
namespace {

/// Limit for a communicator's calls in flight: far below what the 16-bit call number of a tag tells apart.
constexpr std::uint64_t most_calls = 64;

Ways ways_of(const EngineSettings& settings, bool mpi_alone) {
  Ways ways{std::vector<int>(static_cast<std::size_t>(settings.map.ranks()), Ways::no_member), mpi_alone,
            topology::message_bytes};
  for (std::size_t i = 0; i < settings.members.size(); ++i) {
    ways.member[static_cast<std::size_t>(settings.members[i])] = static_cast<int>(i);
  }
  return ways;
}

/// How often the engine's thread polls the network while no call is in flight, so that data of finished calls
/// leaves. It rarely finds any (a socket was full), but the network cannot tell when everything has left.
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

/// calloc leaves large blocks untouched, so they take up memory only where they are used.
std::shared_ptr<void> plain_memory(std::size_t bytes) {
  constexpr std::size_t alignment = 64;
  void* const block = std::calloc(1, bytes + alignment);
  if (block == nullptr) return nullptr;
  const std::uintptr_t start = (reinterpret_cast<std::uintptr_t>(block) + alignment - 1) & ~(alignment - 1);
  return {reinterpret_cast<void*>(start), [block](void*) { std::free(block); }};
}

/// A lock that knows its holder. Only the holder may use the driver.
class Token {
 public:
  void lock() {
    mutex_.lock();
    holder_ = std::this_thread::get_id();
  }
  bool try_lock() {
    if (!mutex_.try_lock()) return false;
    holder_ = std::this_thread::get_id();
    return true;
  }
  void unlock() {
    holder_ = std::thread::id();
    mutex_.unlock();
  }
  [[nodiscard]] bool is_mine() const { return holder_ == std::this_thread::get_id(); }

 private:
  std::mutex mutex_;
  std::atomic<std::thread::id> holder_;
};

}  // namespace

struct Engine::State {
  explicit State(EngineSettings settings)
      : rank(settings.rank),
        map(settings.map),
        ways(ways_of(settings, false)),
        mpi_ways(ways_of(settings, true)),
        threaded(is_for_any_thread(settings.network.get()) && is_for_any_thread(settings.mpi.get())),
        memory(settings.memory),
        watch(settings.watch),
        has_run(settings.run != nullptr),
        recorder(memory && member() != Ways::no_member ? &memory->tape(member()) : nullptr),
        run(settings.run),
        has_mpi(settings.mpi != nullptr),
        network_name(settings.network ? settings.network->name() : ""),
        driver(std::make_unique<Driver>(std::move(settings), recorder, threaded)) {
    if (watch) watch->attach(recorder, [this] { driver->interrupt(); });
  }

  struct Queued {
    Call call;
    std::shared_ptr<WorkState> work;
  };

  const int rank;
  const topology::RankMap map;
  const Ways ways;
  const Ways mpi_ways;
  const bool threaded;  // a thread of the engine may drive calls
  const std::shared_ptr<HostMemory> memory;
  const std::shared_ptr<Watch> watch;
  const bool has_run;  // `run != nullptr`, next to what small calls read
  FlightRecorder recorder;
  const std::shared_ptr<RunRecorder> run;
  const bool has_mpi;
  const std::string network_name;

  Token token;
  std::unique_ptr<Driver> driver;

  mutable std::mutex mutex;  // protects everything below
  std::condition_variable changed;
  std::deque<Queued> queue;
  std::thread thread;
  bool left_over = false;  // a token holder left operations in flight
  bool looking = false;    // the thread polls so that sent data leaves
  std::uint64_t hand_overs = 0;
  bool stopping = false;
  std::optional<Error> failure;
  std::atomic<std::size_t> queued = 0;
  std::atomic<bool> failed = false;
  std::atomic<bool> closed = false;

  [[nodiscard]] int member() const noexcept { return ways.member[static_cast<std::size_t>(rank)]; }

  void require_usable(const char* name) const {
    if (!closed && !failed) return;
    if (closed) {
      throw Error(ErrorCode::transport,
                  fmt::format("{}: this communicator's context has been destroyed", name));
    }
    throw failed_before(name);
  }
  [[nodiscard]] Error failed_before(const char* name) const {
    const std::lock_guard lock(mutex);
    if (!failure) return {ErrorCode::transport, fmt::format("{}: this rank has already given up", name)};
    const std::string_view first = failure->what();
    return {failure->code(), fmt::format("{}: the job has failed before; restart it. The first failure: {}",
                                         name, first.substr(0, first.find('\n')))};
  }

  [[nodiscard]] bool has_work() const {
    return driver->busy() || queued.load(std::memory_order_acquire) != 0;
  }

  /// Begins queued calls. Caller holds the token. Beginning a call may fail the engine, because messages that
  /// arrived early may be of another call; another thread may fail it too. The remaining calls then end with
  /// the queue.
  void take_queue() {
    while (queued.load(std::memory_order_acquire) != 0) {
      const std::optional<Queued> next = next_queued();
      if (!next) return;
      driver->begin(next->call, next->work);
      if (failed) return;
    }
  }
  /// Removes and returns the first queued call that may begin.
  std::optional<Queued> next_queued() {
    const std::lock_guard lock(mutex);
    const auto next = std::ranges::find_if(queue, [&](const Queued& entry) {
      const std::uint64_t oldest = driver->oldest_call(entry.call.communicator);
      return oldest + most_calls > entry.call.sequence || oldest > entry.call.sequence;
    });
    if (next == queue.end()) return {};
    std::optional<Queued> taken = std::move(*next);
    queue.erase(next);
    queued.store(queue.size(), std::memory_order_release);
    return taken;
  }

  /// Makes progress until `is_over`. Caller holds the token.
  template <typename IsOver>
  void drive(const IsOver& is_over) {
    int idle = 0;
    for (;;) {
      take_queue();
      const bool moved = driver->progress();
      if (is_over()) return;
      if (moved) {
        idle = 0;
      } else {
        driver->wait(idle);
      }
    }
  }

  /// Fails the engine and all its calls. Returns the first failure with the watch's report. Caller holds the
  /// token.
  Error fail(const Error& error, const Driver::About& about) {
    failed = true;  // no further call begins
    const Error full = watch ? examined(error, about) : error;
    if (driver->settings().on_failure) driver->settings().on_failure(recorder.records());
    std::deque<Queued> dropped;
    Error first = full;
    {
      const std::lock_guard lock(mutex);
      if (!failure) failure = full;
      first = *failure;
      dropped.swap(queue);
      queued = 0;
    }
    driver->fail(first);
    for (Queued& entry : dropped) {
      recorder.over(entry.call.record, true);
      entry.work->finish(first);
    }
    return first;
  }
  Error fail(const Error& error) { return fail(error, driver->about()); }
  /// Tells the other ranks, and waits for their reports.
  Error examined(const Error& error, const Driver::About& about) {
    watch->stopped(driver->describe_awaited());
    watch->announce({failure_kind(error.code()), rank, about.brief.empty() ? error.what() : about.brief,
                     about.call.communicator, about.call.sequence});
    const ExitReport report = watch->report();
    return {code_for(report.failure, error.code()), explained(error, report, watch->is_reported_by_root())};
  }

  void run_here(Call& call) {
    OperationState* operation = nullptr;
    try {
      operation = driver->run_small(call);
      if (operation != nullptr) drive([&] { return operation->done && !driver->must_flush(); });
    } catch (const Error& error) {
      throw Error(fail(error));
    }
    if (operation == nullptr) {
      const FlightRecorder::Times times = recorder.over(call.record, false);
      if (has_run) driver->note_small(times);
      return;
    }
    if (operation->failed) {  // a continuation failed the engine
      const std::lock_guard lock(mutex);
      throw Error(*failure);
    }
    if (run) run->statistics().waited(Ticks::now() - operation->begun);
    driver->give_back(*operation);
  }

  /// After a failure, whether this thread holds the token; in a continuation it already does. With a watch
  /// the holder releases it once the failure is announced; without one it may never do so, hence try_lock.
  bool get_token(std::unique_lock<Token>& hold) {
    if (token.is_mine()) return true;
    if (!watch) return hold.try_lock();
    hold.lock();
    return true;
  }

  /// Leaves unfinished work to the engine's thread. Caller holds the token.
  void hand_over() {
    const bool has_rest = has_work();
    const bool must_look = threaded && driver->may_hold_back();
    if (!has_rest && !must_look) return;
    bool wakes = has_rest;
    {
      const std::lock_guard lock(mutex);
      ++hand_overs;
      left_over = left_over || has_rest;
      if (must_look && !std::exchange(looking, true)) wakes = true;
      start_thread();
    }
    if (wakes) changed.notify_one();
  }

  /// Caller holds the mutex.
  void start_thread() {
    if (threaded && !stopping && !thread.joinable()) thread = std::thread([this] { work(); });
  }

  void work() {
    Naps naps = naps_between_looks();
    std::uint64_t seen = 0;  // hand_overs at the last turn
    std::unique_lock lock(mutex);
    for (;;) {
      const auto is_wanted = [&] { return stopping || left_over || !queue.empty(); };
      if (!looking) {
        naps.reset();
        changed.wait(lock, [&] { return is_wanted() || looking; });
      }
      if (looking) changed.wait_for(lock, naps.next(), is_wanted);
      if (stopping) return;
      const bool drives = is_wanted();
      if (drives || std::exchange(seen, hand_overs) != hand_overs) naps.reset();
      left_over = false;
      lock.unlock();
      std::unique_lock hold(token, std::defer_lock);
      if (drives) {
        hold.lock();
      } else {
        static_cast<void>(hold.try_lock());
      }
      const bool goes_on = hold && go_on(drives);
      lock.lock();
      // Another holder of the token makes progress itself, and hands over when it is done if it has not yet.
      if (hold || hand_overs == seen) looking = goes_on;
    }
  }

  /// Drives all calls, or else polls once. Returns whether to keep polling. Caller holds the token.
  bool go_on(bool drives) {
    try {
      if (drives) {
        drive([&] { return !has_work(); });
      } else if (!failed) {
        driver->progress();
      }
      return !failed && driver->may_hold_back();
    } catch (const Error& error) {
      fail(error);
      return false;
    }
  }

  void help(const WorkState& wanted, bool until_done) {
    const std::lock_guard hold(token);
    if (closed || failed) return;
    try {
      if (until_done) {
        drive([&] { return wanted.done() && !driver->must_flush(); });
      } else {
        take_queue();
        driver->progress();
      }
    } catch (const Error& error) {
      fail(error);
    }
  }

  std::shared_ptr<WorkState> new_work() {
    if (threaded) return std::make_shared<WorkState>(nullptr, run);
    return std::make_shared<WorkState>(
        [this](const WorkState& wanted, bool until_done) { help(wanted, until_done); }, run);
  }

  std::shared_ptr<WorkState> enqueue(const Call& call) {
    std::shared_ptr<WorkState> work = new_work();
    {
      const std::lock_guard lock(mutex);
      if (failure) {
        const Error error = *failure;
        work->finish(error);
        return work;
      }
      queue.push_back({call, work});
      queued.store(queue.size(), std::memory_order_release);
      start_thread();
    }
    changed.notify_one();
    driver->interrupt();
    return work;
  }
};

Engine::Engine(EngineSettings settings) : state_(std::make_unique<State>(std::move(settings))) {}

Engine::~Engine() {
  if (!state_->closed) {
    state_->failed = true;  // so that close() waits for nothing
    close();
  }
}

int Engine::rank() const noexcept { return state_->rank; }
const topology::RankMap& Engine::map() const noexcept { return state_->map; }
HostMemory* Engine::memory() const noexcept { return state_->memory.get(); }
std::shared_ptr<void> Engine::allocate(std::size_t bytes) const {
  if (!state_->memory) return plain_memory(bytes);
  void* const data = state_->memory->allocate(member(), bytes);
  if (data == nullptr) return nullptr;
  return {data, [memory = state_->memory, index = member()](void* block) { memory->release(index, block); }};
}
int Engine::member() const noexcept { return state_->member(); }
bool Engine::has_mpi() const noexcept { return state_->has_mpi; }
bool Engine::has_thread() const noexcept { return state_->threaded; }
std::string Engine::network_name() const { return state_->network_name; }
Watch* Engine::watch() const noexcept { return state_->watch.get(); }
FlightRecorder& Engine::recorder() noexcept { return state_->recorder; }
const std::shared_ptr<RunRecorder>& Engine::run_recorder() const noexcept { return state_->run; }
const Ways& Engine::ways(bool mpi_alone) const noexcept {
  return mpi_alone ? state_->mpi_ways : state_->ways;
}
bool Engine::failed() const noexcept { return state_->failed; }

void Engine::run(Call&& call) {
  state_->require_usable(call.id.name);
  std::unique_lock hold(state_->token, std::try_to_lock);
  if (!hold) {
    if (state_->threaded) return state_->enqueue(call)->wait();
    hold.lock();
  }
  state_->run_here(call);
  state_->hand_over();
}

std::shared_ptr<WorkState> Engine::start(const Call& call) {
  state_->require_usable(call.id.name);
  return state_->enqueue(call);
}

std::shared_ptr<WorkState> Engine::new_work() { return state_->new_work(); }

Error Engine::failed_before(const char* name) const { return state_->failed_before(name); }

Error Engine::give_up(const Error& error, const CallId& call) {
  State& state = *state_;
  if (state.closed) return error;
  state.failed = true;
  if (state.watch) {
    state.watch->announce(
        {failure_kind(error.code()), state.rank, error.what(), call.communicator, call.sequence});
  }
  std::unique_lock hold(state.token, std::defer_lock);
  if (!state.get_token(hold)) return error;
  return state.fail(error, {call, {}});
}

void Engine::announce_failure(const std::string& why) {
  State& state = *state_;
  if (state.closed) return;
  {
    const std::lock_guard lock(state.mutex);
    if (!state.failure) state.failure = Error(ErrorCode::transport, why);
  }
  if (state.watch) {
    state.watch->announce({JobFailure::Kind::threw, state.rank,
                           fmt::format("rank {} (host {}) gave up: {}", state.rank,
                                       state.map.short_name(state.map.host_of(state.rank)), why),
                           0, 0});
  }
  std::unique_lock hold(state.token, std::defer_lock);
  if (state.get_token(hold)) state.driver->abandon();
}

void Engine::progress() {
  State& state = *state_;
  if (state.closed || state.failed) return;
  const std::unique_lock hold(state.token, std::try_to_lock);
  if (!hold) return;
  try {
    state.driver->progress();
  } catch (const Error& error) {
    state.fail(error);
    return;
  }
  state.hand_over();
}

void Engine::drain() {
  State& state = *state_;
  if (state.closed || state.failed) return;
  const std::lock_guard hold(state.token);
  try {
    state.drive([&] { return !state.has_work(); });
  } catch (const Error& error) {
    state.fail(error);
  }
}

void Engine::close() {
  State& state = *state_;
  if (state.closed) return;
  drain();
  {
    const std::lock_guard lock(state.mutex);
    state.stopping = true;
  }
  state.changed.notify_all();
  state.driver->interrupt();
  if (state.thread.joinable()) state.thread.join();
  state.closed = true;
  if (state.watch) state.watch->detach();
  if (state.failed) {
    state.driver->abandon();
  } else {
    state.driver->announce_leaving();
  }
  state.driver.reset();
}

}  // namespace ddl::collectives
