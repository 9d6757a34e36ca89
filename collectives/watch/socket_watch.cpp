#include "collectives/watch/socket_watch.hpp"

#include <algorithm>
#include <condition_variable>
#include <iterator>

namespace ddl::collectives {
namespace {

using Kind = Frame::Kind;

/// How many dead ranks of its host a rank reports on.
constexpr std::size_t most_neighbours = 64;
constexpr auto time_to_say_goodbye = std::chrono::milliseconds(200);
constexpr unsigned from_the_hub =
    FrameReader::bit(Kind::failure) | FrameReader::bit(Kind::report) | FrameReader::bit(Kind::leave);

Connection greet(const SocketWatch::Settings& settings) {
  Connection connection(
      connect_to_first(settings.invitation.addresses, settings.invitation.port, settings.until));
  connection.send({Kind::hello, to_message(settings.hello)});
  for (;;) {
    if (connection.next(FrameReader::bit(Kind::welcome))) return connection;
    pollfd readable{connection.descriptor(), POLLIN, 0};
    if (poll_until(std::span(&readable, 1), settings.until) <= 0) {
      throw Error(ErrorCode::transport, "rank 0 does not answer");
    }
    const bool is_open = connection.receive();
    if (!is_open && !connection.next(FrameReader::bit(Kind::welcome))) {
      throw Error(ErrorCode::transport, "rank 0 has closed the connection without an answer");
    }
  }
}

}  // namespace

struct SocketWatch::State {
  explicit State(const Settings& given) : settings(given), connection(greet(settings)), wake(new_event()) {
    own.host = hello.host;
  }

  const Settings settings;
  const WatchHello& hello = settings.hello;
  Connection connection;
  FileDescriptor wake;
  std::atomic<bool> failed = false;
  std::thread thread;

  mutable std::mutex mutex;  // protects everything below, and `connection`
  std::condition_variable changed;
  WatchedRank own;
  std::vector<std::pair<int, const FlightTape*>> neighbours;
  int dump_event = -1;
  std::function<void(const std::vector<FlightRecord>&)> dump;
  std::optional<JobFailure> failure;
  Clock::time_point answer_by;
  bool answered = false;
  bool hub_left = false;
  bool hub_lost = false;
  bool leaving = false;
  bool reported_alone = false;
  std::optional<ExitReport> report;

  void nudge() const noexcept { signal_event(wake.get()); }

  /// Caller holds the mutex.
  void fail(JobFailure first) {
    if (failure) return;
    failure = std::move(first);
    answer_by = Clock::now() + time_to_stop;
    failed.store(true, std::memory_order_release);
    if (own.on_failure) own.on_failure();
    nudge();
  }

  [[nodiscard]] RankReport own_report() const { return own.report(hello.rank, hello.pid, *failure); }
  [[nodiscard]] std::vector<RankReport> neighbours_reports() const {
    std::vector<RankReport> reports;
    for (const auto& [rank, tape] : neighbours) {
      if (own.recorder == nullptr || reports.size() == most_neighbours) break;
      RankReport other;
      other.rank = rank;
      other.host = hello.host;
      describe_calls(other, own.recorder->records_of(*tape), *failure);
      reports.push_back(std::move(other));
    }
    return reports;
  }
  [[nodiscard]] bool is_inside() const {
    return std::ranges::any_of(own.calls(), [](const FlightRecord& record) { return !record.is_over(); });
  }

  void answer_if_due() {
    if (!failure || answered) return;
    if (!own.has_stopped && is_inside() && Clock::now() < answer_by) return;
    answered = true;
    ExitReport answer{*failure, {own_report()}, {}};
    std::ranges::move(neighbours_reports(), std::back_inserter(answer.ranks));
    connection.send({Kind::state, answer.json()});
  }

  /// The report of what this rank knows by itself, for when rank 0 does not gather reports any more.
  [[nodiscard]] ExitReport lonely_report() const {
    ExitReport lonely{*failure, {}, fmt::format("rank {} alone", hello.rank)};
    RankReport root;
    root.host = settings.invitation.host;
    root.pid = settings.invitation.pid;
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

  /// Whether this rank should report rank 0's death itself: it is in no collective that would throw, and
  /// mpirun may kill the job before it enters one.
  [[nodiscard]] bool must_report_alone() const {
    return hub_lost && failure && !report && !own.has_stopped && !reported_alone;
  }
  void report_alone_if_due(std::unique_lock<std::mutex>& lock) {
    if (!must_report_alone() || Clock::now() < answer_by) return;
    reported_alone = true;
    const ExitReport lonely = lonely_report();
    lock.unlock();
    settings.on_report(lonely);
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
    listen();  // frames may have arrived together with the welcome
    while (!leaving) {
      const bool is_due = failure && (!answered || must_report_alone());
      const auto until = is_due ? answer_by : Clock::time_point::max();
      const bool listens = !hub_lost && !hub_left;
      const short events = connection.has_more_to_send() ? POLLIN | POLLOUT : POLLIN;
      std::array<pollfd, 3> waiting{{{wake.get(), POLLIN, 0},
                                     {listens ? connection.descriptor() : -1, events, 0},
                                     {dump_event, POLLIN, 0}}};
      lock.unlock();
      poll_until(waiting, until);
      clear_event(wake.get());
      lock.lock();
      if (waiting[1].revents != 0) listen();
      if (waiting[2].revents != 0) {
        clear_event(dump_event);
        dump(own.calls());
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
      // Rank 0's death explains why a connection broke.
      death.communicator = failure->communicator;
      death.sequence = failure->sequence;
      failure = std::move(death);
    } else {
      fail(std::move(death));
    }
    changed.notify_all();
  }
};

SocketWatch::SocketWatch(const Settings& settings) : state_(std::make_unique<State>(settings)) {
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
  state_->own.attach(recorder, std::move(on_failure));
  if (state_->failure) state_->own.on_failure();
}

void SocketWatch::detach() {
  const std::lock_guard lock(state_->mutex);
  state_->own.detach();
  state_->neighbours.clear();
}

bool SocketWatch::failed() const noexcept { return state_->failed.load(std::memory_order_acquire); }

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
  state_->own.has_stopped = true;
  state_->own.waits_for = waits_for;
  state_->nudge();
}

bool SocketWatch::is_reported_by_root() const { return state_->hello.rank != 0; }

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
  return std::exchange(state_->own.scope, std::move(scope));
}

void SocketWatch::leave() noexcept {
  const std::lock_guard lock(state_->mutex);
  if (std::exchange(state_->leaving, true)) return;
  try {
    state_->answer_if_due();
    if (!state_->hub_lost && !state_->hub_left) {
      // After a failure the end of the connection suffices.
      if (!state_->failure) state_->connection.send({Kind::leave, {}});
      state_->connection.flush_for(time_to_say_goodbye);
    }
  } catch (const std::exception&) {  // out of memory; the hub notices that the connection ends
  }
  state_->nudge();
}

}  // namespace ddl::collectives
