#include "collectives/engine/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "collectives/engine/driver.hpp"
#include "ddl/error.hpp"
#include "ddl/topology/lowering.hpp"

namespace ddl::collectives {
namespace {

/// Calls of one communicator that are under way at a time: far from what a tag's 16 bits tell apart.
constexpr std::uint64_t most_calls = 64;

Ways ways_of(const EngineSettings& settings, bool mpi_alone) {
  Ways ways{std::vector<int>(static_cast<std::size_t>(settings.map.ranks()), Ways::no_member), mpi_alone,
            topology::message_bytes};
  for (std::size_t i = 0; i < settings.members.size(); ++i) {
    ways.member[static_cast<std::size_t>(settings.members[i])] = static_cast<int>(i);
  }
  return ways;
}

bool is_for_any_thread(const Network* network) { return network == nullptr || network->any_thread(); }

}  // namespace

struct Engine::State {
  explicit State(EngineSettings settings)
      : rank(settings.rank),
        map(settings.map),
        ways(ways_of(settings, false)),
        mpi_ways(ways_of(settings, true)),
        threaded(is_for_any_thread(settings.network.get()) && is_for_any_thread(settings.mpi.get())),
        memory(settings.memory),
        has_mpi(settings.mpi != nullptr),
        network_name(settings.network ? settings.network->name() : ""),
        driver(std::make_unique<Driver>(std::move(settings))) {}

  struct Queued {
    Call call;
    std::shared_ptr<WorkState> work;
  };

  const int rank;
  const topology::RankMap map;
  const Ways ways;
  const Ways mpi_ways;
  const bool threaded;  // a thread of the engine's own may do the work
  const std::shared_ptr<HostMemory> memory;
  const bool has_mpi;
  const std::string network_name;

  std::mutex token;  // its holder alone uses the driver
  std::unique_ptr<Driver> driver;

  std::mutex mutex;  // of what follows
  std::condition_variable changed;
  std::deque<Queued> queue;
  std::thread thread;
  bool left_over = false;  // operations that whoever held the token has not finished
  bool stopping = false;
  std::optional<Error> failure;
  std::atomic<std::size_t> queued = 0;
  std::atomic<bool> failed = false;
  std::atomic<bool> closed = false;

  void require_usable(const char* name) const {
    if (!closed && !failed) return;
    throw Error(ErrorCode::transport,
                fmt::format("{}: {}", name,
                            closed ? "this communicator's context has been destroyed"
                                   : "an earlier collective of this job failed; restart it"));
  }

  /// With the token.
  void take_queue() {
    if (queued.load(std::memory_order_acquire) == 0) return;
    std::deque<Queued> taken;
    {
      const std::lock_guard lock(mutex);
      for (auto entry = queue.begin(); entry != queue.end();) {
        if (!may_begin(entry->call, taken)) {
          ++entry;
          continue;
        }
        taken.push_back(std::move(*entry));
        entry = queue.erase(entry);
      }
      queued.store(queue.size(), std::memory_order_release);
    }
    for (Queued& entry : taken) driver->begin(entry.call, std::move(entry.work));
  }
  [[nodiscard]] bool may_begin(const Call& call, const std::deque<Queued>& taken) const {
    const std::uint64_t oldest = driver->oldest_call(call.communicator);
    const auto first = std::ranges::find_if(
        taken, [&](const Queued& other) { return other.call.communicator == call.communicator; });
    const std::uint64_t before = first == taken.end() ? oldest : std::min(oldest, first->call.sequence);
    return before + most_calls > call.sequence || before > call.sequence;
  }

  /// With the token: until `is_over`.
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

  /// Whatever goes wrong is the end of all.
  void fail(const Error& error) {
    std::deque<Queued> dropped;
    {
      const std::lock_guard lock(mutex);
      if (!failure) failure = error;
      failed = true;
      dropped.swap(queue);
      queued = 0;
    }
    driver->fail(error);
    for (Queued& entry : dropped) entry.work->finish(error);
  }

  void run_here(const Call& call) {
    OperationState* operation = nullptr;
    try {
      operation = driver->run_small(call);
      if (operation != nullptr) drive([&] { return operation->done && !driver->must_flush(); });
    } catch (const Error& error) {
      fail(error);
      throw;
    }
    if (operation != nullptr) driver->give_back(*operation);
  }

  /// What the token's holder leaves undone is the thread's.
  void hand_over() {
    if (!driver->busy() && queued.load(std::memory_order_acquire) == 0) return;
    {
      const std::lock_guard lock(mutex);
      left_over = true;
    }
    changed.notify_one();
  }

  void work() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return stopping || left_over || !queue.empty(); });
      if (stopping) return;
      left_over = false;
      lock.unlock();
      {
        const std::lock_guard hold(token);
        try {
          drive([&] { return !driver->busy() && queued.load(std::memory_order_acquire) == 0; });
        } catch (const Error& error) {
          fail(error);
        }
      }
      lock.lock();
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

  std::shared_ptr<WorkState> enqueue(const Call& call) {
    auto work = std::make_shared<WorkState>(
        threaded ? WorkState::Help()
                 : [this](const WorkState& wanted, bool until_done) { help(wanted, until_done); });
    {
      const std::lock_guard lock(mutex);
      if (failure) {
        const Error error = *failure;
        work->finish(error);
        return work;
      }
      queue.push_back({call, work});
      queued.store(queue.size(), std::memory_order_release);
      if (threaded && !thread.joinable()) thread = std::thread([this] { this->work(); });
    }
    changed.notify_one();
    driver->interrupt();
    return work;
  }
};

Engine::Engine(EngineSettings settings) : state_(std::make_unique<State>(std::move(settings))) {}

Engine::~Engine() {
  if (!state_->closed) {
    state_->failed = true;  // nothing is waited for
    close();
  }
}

int Engine::rank() const noexcept { return state_->rank; }
const topology::RankMap& Engine::map() const noexcept { return state_->map; }
HostMemory* Engine::memory() const noexcept { return state_->memory.get(); }
int Engine::member() const noexcept { return state_->ways.member[static_cast<std::size_t>(state_->rank)]; }
bool Engine::has_mpi() const noexcept { return state_->has_mpi; }
bool Engine::has_thread() const noexcept { return state_->threaded; }
std::string Engine::network_name() const { return state_->network_name; }
const Ways& Engine::ways(bool mpi_alone) const noexcept {
  return mpi_alone ? state_->mpi_ways : state_->ways;
}
bool Engine::failed() const noexcept { return state_->failed; }

void Engine::run(const Call& call) {
  state_->require_usable(call.name);
  std::unique_lock hold(state_->token, std::try_to_lock);
  if (!hold) {
    if (state_->threaded) return state_->enqueue(call)->wait();
    hold.lock();
  }
  state_->run_here(call);
  state_->hand_over();
}

std::shared_ptr<WorkState> Engine::start(const Call& call) {
  state_->require_usable(call.name);
  return state_->enqueue(call);
}

void Engine::announce_failure() {
  if (state_->closed) return;
  state_->driver->announce_failure();
}

void Engine::drain() {
  State& state = *state_;
  if (state.closed || state.failed) return;
  const std::lock_guard hold(state.token);
  try {
    state.drive([&] { return !state.driver->busy() && state.queued.load(std::memory_order_acquire) == 0; });
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
  if (state.failed) {
    state.driver->abandon();
  } else {
    state.driver->announce_leaving();
  }
  state.driver.reset();
}

}  // namespace ddl::collectives
