#include "collectives/watch/socket_watch.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <iterator>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "ddl/error.hpp"

namespace ddl::collectives {
namespace {

using SteadyClock = std::chrono::steady_clock;
using Kind = Frame::Kind;

/// A host with more ranks does not answer for all of its dead.
constexpr std::size_t most_neighbours = 64;
constexpr auto time_to_say_goodbye = std::chrono::milliseconds(200);
constexpr unsigned from_the_hub =
    FrameReader::bit(Kind::failure) | FrameReader::bit(Kind::report) | FrameReader::bit(Kind::leave);

Connection greet(const SocketWatch::Settings& settings) {
  Connection connection(connect_to_first(settings.addresses, settings.port, settings.until));
  connection.send({Kind::hello, to_message(settings.hello)});
  for (;;) {
    if (connection.next(FrameReader::bit(Kind::welcome))) return connection;
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(settings.until - SteadyClock::now()).count();
    pollfd readable{connection.descriptor(), POLLIN, 0};
    const int ready = left > 0 ? poll(&readable, 1, static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) throw Error(ErrorCode::transport, "rank 0 does not answer");
    const bool is_open = connection.receive();
    if (!is_open && !connection.next(FrameReader::bit(Kind::welcome))) {
      throw Error(ErrorCode::transport, "rank 0 has closed the connection without an answer");
    }
  }
}

}  // namespace

struct SocketWatch::State {
  State(const Settings& settings, std::atomic<bool>& failed_flag)
      : hello(settings.hello),
        root_host(settings.root_host),
        root_pid(settings.root_pid),
        on_report(settings.on_report),
        connection(greet(settings)),
        wake(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
        failed(failed_flag) {}

  const WatchHello hello;
  const std::string root_host;
  const std::int64_t root_pid;
  const std::function<void(const ExitReport&)> on_report;
  Connection connection;
  FileDescriptor wake;
  std::atomic<bool>& failed;
  std::thread thread;

  mutable std::mutex mutex;  // of what follows, and of the connection
  std::condition_variable changed;
  const FlightRecorder* recorder = nullptr;
  std::vector<FlightRecord> records;  // once the recorder is gone
  std::vector<std::pair<int, const FlightTape*>> neighbours;
  std::function<void()> on_failure;
  int dump_event = -1;
  std::function<void(const std::vector<FlightRecord>&)> dump;
  std::string scope;
  std::string waits_for;
  std::optional<JobFailure> failure;
  SteadyClock::time_point answer_by;
  bool has_stopped = false;
  bool answered = false;
  bool hub_left = false;
  bool hub_lost = false;
  bool leaving = false;
  bool reported_alone = false;
  std::optional<ExitReport> report;

  void nudge() const noexcept {
    const std::uint64_t one = 1;
    static_cast<void>(!write(wake.get(), &one, sizeof one));
  }

  /// With the mutex.
  void fail(JobFailure first) {
    if (failure) return;
    failure = std::move(first);
    answer_by = SteadyClock::now() + time_to_stop;
    failed.store(true, std::memory_order_release);
    if (on_failure) on_failure();
    nudge();
  }

  [[nodiscard]] std::vector<FlightRecord> own_records() const {
    return recorder == nullptr ? records : recorder->records();
  }
  [[nodiscard]] RankReport own_report() const {
    RankReport own;
    own.rank = hello.rank;
    own.host = hello.host;
    own.pid = hello.pid;
    own.life = RankReport::Life::answers;
    own.scope = scope;
    own.waits_for = waits_for;
    describe_calls(own, own_records(), *failure);
    return own;
  }
  [[nodiscard]] std::vector<RankReport> neighbours_reports() const {
    std::vector<RankReport> reports;
    for (const auto& [rank, tape] : neighbours) {
      if (recorder == nullptr || reports.size() == most_neighbours) break;
      RankReport other;
      other.rank = rank;
      other.host = hello.host;
      describe_calls(other, recorder->records_of(*tape), *failure);
      reports.push_back(std::move(other));
    }
    return reports;
  }
  [[nodiscard]] bool is_inside() const {
    return std::ranges::any_of(own_records(), [](const FlightRecord& record) { return !record.is_over(); });
  }

  void answer_if_due() {
    if (!failure || answered) return;
    if (!has_stopped && is_inside() && SteadyClock::now() < answer_by) return;
    answered = true;
    ExitReport own{*failure, {own_report()}, {}};
    std::ranges::move(neighbours_reports(), std::back_inserter(own.ranks));
    connection.send({Kind::state, own.json()});
  }

  /// Rank 0 does not gather anything any more: what this rank knows by itself.
  [[nodiscard]] ExitReport lonely_report() const {
    ExitReport lonely{*failure, {}, fmt::format("rank {} alone", hello.rank)};
    RankReport root;
    root.host = root_host;
    root.pid = root_pid;
    root.life = hub_lost   ? RankReport::Life::dead
                : hub_left ? RankReport::Life::left
                           : RankReport::Life::silent;
    for (const RankReport& other : neighbours_reports()) {
      if (other.rank != 0) continue;
      root.inside = other.inside;
      root.last = other.last;
      root.same = other.same;
    }
    root.rank = 0;
    if (hello.rank != 0) lonely.ranks.push_back(std::move(root));
    lonely.ranks.push_back(own_report());
    return lonely;
  }

  /// Whether this rank is to say itself that rank 0 is gone: its program may compute for longer than mpirun
  /// lets it live.
  [[nodiscard]] bool must_report_alone() const {
    return hub_lost && failure && !report && !has_stopped && !reported_alone;
  }
  void report_alone_if_due(std::unique_lock<std::mutex>& lock) {
    if (!must_report_alone() || SteadyClock::now() < answer_by) return;
    reported_alone = true;
    const ExitReport lonely = lonely_report();
    lock.unlock();
    on_report(lonely);
    lock.lock();
  }

  void take(const Frame& frame) {
    if (frame.kind == Kind::failure) {
      fail(parse_failure(frame.body));
    } else if (frame.kind == Kind::report) {
      report = parse_report(frame.body);
      fail(report->failure);
      changed.notify_all();
    } else {
      hub_left = true;
    }
  }

  void run() {
    std::unique_lock lock(mutex);
    listen();  // something may have come along with the welcome
    while (!leaving) {
      int timeout = -1;
      if (failure && (!answered || must_report_alone())) {
        const auto left =
            std::chrono::ceil<std::chrono::milliseconds>(answer_by - SteadyClock::now()).count();
        timeout = static_cast<int>(std::max<std::int64_t>(left, 0));
      }
      const bool listens = !hub_lost && !hub_left;
      const short events = connection.has_more_to_send() ? POLLIN | POLLOUT : POLLIN;
      std::array<pollfd, 3> waiting{{{wake.get(), POLLIN, 0},
                                     {listens ? connection.descriptor() : -1, events, 0},
                                     {dump_event, POLLIN, 0}}};
      lock.unlock();
      poll(waiting.data(), waiting.size(), timeout);
      std::uint64_t nudges = 0;
      static_cast<void>(!read(wake.get(), &nudges, sizeof nudges));
      lock.lock();
      if (waiting[1].revents != 0) listen();
      if (waiting[2].revents != 0) {
        static_cast<void>(!read(dump_event, &nudges, sizeof nudges));
        dump(own_records());
      }
      answer_if_due();
      report_alone_if_due(lock);
    }
  }

  void listen() {
    connection.flush();
    const bool is_open = connection.receive();
    try {
      while (const std::optional<Frame> frame = connection.next(from_the_hub)) take(*frame);
      if (is_open || hub_left) return;
    } catch (const Error& error) {
      fail({JobFailure::Kind::threw, 0,
            fmt::format("rank 0 sends garbage to rank {}: {}", hello.rank, error.what()), 0, 0});
    }
    lose_hub();
  }

  void lose_hub() {
    hub_lost = true;
    JobFailure death{JobFailure::Kind::died, 0,
                     "rank 0 has died: its process is gone, or its connections broke", 0, 0};
    if (failure && failure->kind == JobFailure::Kind::network) {
      // That is why a connection broke, which was noticed first.
      death.communicator = failure->communicator;
      death.sequence = failure->sequence;
      failure = std::move(death);
    } else {
      fail(std::move(death));
    }
    changed.notify_all();
  }
};

SocketWatch::SocketWatch(const Settings& settings) : state_(std::make_unique<State>(settings, failed_)) {
  if (!state_->wake.valid()) {
    throw Error(ErrorCode::transport, fmt::format("eventfd failed: {} (ulimit -n)", std::strerror(errno)));
  }
  state_->thread = std::thread([this] { state_->run(); });
}

SocketWatch::~SocketWatch() {
  leave();
  state_->thread.join();
}

void SocketWatch::add_neighbour(int rank, const FlightTape& tape) {
  const std::lock_guard lock(state_->mutex);
  state_->neighbours.emplace_back(rank, &tape);
}

void SocketWatch::dump_on(int event, std::function<void(const std::vector<FlightRecord>&)> dump) {
  const std::lock_guard lock(state_->mutex);
  state_->dump_event = event;
  state_->dump = std::move(dump);
  state_->nudge();
}

void SocketWatch::attach(const FlightRecorder& recorder, std::function<void()> on_failure) {
  const std::lock_guard lock(state_->mutex);
  state_->recorder = &recorder;
  state_->on_failure = std::move(on_failure);
  if (state_->failure) state_->on_failure();
}

void SocketWatch::detach() {
  const std::lock_guard lock(state_->mutex);
  if (state_->recorder != nullptr) state_->records = state_->recorder->records();
  state_->recorder = nullptr;
  state_->on_failure = nullptr;
  state_->neighbours.clear();
}

JobFailure SocketWatch::failure() const {
  const std::lock_guard lock(state_->mutex);
  return state_->failure.value_or(JobFailure{});
}

void SocketWatch::announce(const JobFailure& failure) {
  const std::lock_guard lock(state_->mutex);
  if (state_->failure || state_->leaving) return;
  if (!state_->hub_lost && !state_->hub_left) state_->connection.send({Kind::failure, to_message(failure)});
  state_->fail(failure);
}

void SocketWatch::stopped(const std::string& waits_for) {
  const std::lock_guard lock(state_->mutex);
  state_->has_stopped = true;
  state_->waits_for = waits_for;
  state_->nudge();
}

ExitReport SocketWatch::report() {
  std::unique_lock lock(state_->mutex);
  constexpr auto way_there_and_back = std::chrono::milliseconds(100);
  state_->changed.wait_for(lock, time_to_report + way_there_and_back,
                           [&] { return state_->report || state_->hub_lost || state_->hub_left; });
  if (state_->report) return *state_->report;
  return state_->lonely_report();
}

std::string SocketWatch::set_scope(std::string scope) {
  const std::lock_guard lock(state_->mutex);
  return std::exchange(state_->scope, std::move(scope));
}

void SocketWatch::leave() noexcept {
  const std::lock_guard lock(state_->mutex);
  if (std::exchange(state_->leaving, true)) return;
  try {
    state_->answer_if_due();
    if (!state_->hub_lost && !state_->hub_left) {
      // After a failure its end says as much.
      if (!state_->failure) state_->connection.send({Kind::leave, {}});
      state_->connection.flush_for(time_to_say_goodbye);
    }
  } catch (const std::exception&) {  // no memory; the others see the connection end
  }
  state_->nudge();
}

}  // namespace ddl::collectives
