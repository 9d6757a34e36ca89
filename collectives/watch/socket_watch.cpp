#include "collectives/watch/socket_watch.hpp"

#include <algorithm>
#include <condition_variable>
#include <iterator>

namespace ddl::collectives {
namespace {

using Kind = Frame::Kind;

/// How many dead ranks of its host a rank reports on.
constexpr std::size_t most_neighbours = 64;
constexpr unsigned from_the_hub =
    FrameReader::bit(Kind::failure) | FrameReader::bit(Kind::report) | FrameReader::bit(Kind::leave);

Connection greet(const SocketWatchSettings& settings) {
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

class SocketWatch final : public Watch {
 public:
  explicit SocketWatch(const SocketWatchSettings& given)
      : settings_(given), connection_(greet(settings_)), wake_(new_event()) {
    own_.host = hello_.host;
    thread_ = std::thread([this] { run(); });
  }
  SocketWatch& operator=(SocketWatch&&) = delete;
  ~SocketWatch() override {
    SocketWatch::leave();
    thread_.join();
  }

  void add_neighbour(int rank, const FlightTape& tape) override {
    const std::lock_guard lock(mutex_);
    neighbours_.emplace_back(rank, &tape);
  }

  void dump_on(int event, std::function<void(const std::vector<FlightRecord>&)> dump) override {
    const std::lock_guard lock(mutex_);
    dump_event_ = event;
    dump_ = std::move(dump);
    nudge();
  }

  void attach(const FlightRecorder& recorder, std::function<void()> on_failure) override {
    const std::lock_guard lock(mutex_);
    own_.attach(recorder, std::move(on_failure));
    if (failure_) own_.on_failure();
  }

  void detach() override {
    const std::lock_guard lock(mutex_);
    own_.detach();
    neighbours_.clear();
  }

  [[nodiscard]] bool failed() const noexcept override { return failed_.load(std::memory_order_acquire); }

  [[nodiscard]] JobFailure failure() const override {
    const std::lock_guard lock(mutex_);
    return failure_.value_or(JobFailure{});
  }

  void announce(const JobFailure& failure) override {
    const std::lock_guard lock(mutex_);
    if (failure_ || leaving_) return;
    if (!hub_lost_ && !hub_left_) connection_.send({Kind::failure, to_message(failure)});
    fail(failure);
  }

  void stopped(const std::string& waits_for) override {
    const std::lock_guard lock(mutex_);
    own_.has_stopped = true;
    own_.waits_for = waits_for;
    nudge();
  }

  [[nodiscard]] bool is_reported_by_root() const override { return hello_.rank != 0; }

  [[nodiscard]] ExitReport report() override {
    std::unique_lock lock(mutex_);
    constexpr auto way_there_and_back = std::chrono::milliseconds(100);
    changed_.wait_for(lock, time_to_report + way_there_and_back,
                      [&] { return report_ || hub_lost_ || hub_left_; });
    if (report_) return *report_;
    return lonely_report();
  }

  std::string set_scope(std::string scope) override {
    const std::lock_guard lock(mutex_);
    return std::exchange(own_.scope, std::move(scope));
  }

  void leave() noexcept override {
    const std::lock_guard lock(mutex_);
    if (std::exchange(leaving_, true)) return;
    try {
      answer_if_due();
      if (!hub_lost_ && !hub_left_) {
        // After a failure the end of the connection suffices.
        if (!failure_) connection_.send({Kind::leave, {}});
        connection_.flush_for(time_to_say_goodbye);
      }
    } catch (const std::exception&) {  // out of memory; the hub notices that the connection ends
    }
    nudge();
  }

 private:
  void nudge() const noexcept { signal_event(wake_.get()); }

  /// Caller holds the mutex.
  void fail(JobFailure first) {
    if (failure_) return;
    failure_ = std::move(first);
    answer_by_ = Clock::now() + time_to_stop;
    failed_.store(true, std::memory_order_release);
    if (own_.on_failure) own_.on_failure();
    nudge();
  }

  [[nodiscard]] RankReport own_report() const { return own_.report(hello_.rank, hello_.pid, *failure_); }
  [[nodiscard]] std::vector<RankReport> neighbours_reports() const {
    std::vector<RankReport> reports;
    for (const auto& [rank, tape] : neighbours_) {
      if (own_.recorder == nullptr || reports.size() == most_neighbours) break;
      RankReport other;
      other.rank = rank;
      other.host = hello_.host;
      describe_calls(other, own_.recorder->records_of(*tape), *failure_);
      reports.push_back(std::move(other));
    }
    return reports;
  }
  [[nodiscard]] bool is_inside() const {
    return std::ranges::any_of(own_.calls(), [](const FlightRecord& record) { return !record.is_over(); });
  }

  void answer_if_due() {
    if (!failure_ || answered_) return;
    if (!own_.has_stopped && is_inside() && Clock::now() < answer_by_) return;
    answered_ = true;
    ExitReport answer{*failure_, {own_report()}, {}};
    std::ranges::move(neighbours_reports(), std::back_inserter(answer.ranks));
    connection_.send({Kind::state, answer.json()});
  }

  /// The report of what this rank knows by itself, for when rank 0 does not gather reports any more.
  [[nodiscard]] ExitReport lonely_report() const {
    ExitReport lonely{*failure_, {}, fmt::format("rank {} alone", hello_.rank)};
    RankReport root;
    root.host = settings_.invitation.host;
    root.pid = settings_.invitation.pid;
    root.life = hub_lost_   ? RankReport::Life::dead
                : hub_left_ ? RankReport::Life::left
                            : RankReport::Life::silent;
    for (const RankReport& other : neighbours_reports()) {
      if (other.rank != 0) continue;
      root.inside = other.inside;
      root.last = other.last;
      root.same = other.same;
    }
    root.rank = 0;
    if (hello_.rank != 0) lonely.ranks.push_back(std::move(root));
    lonely.ranks.push_back(own_report());
    return lonely;
  }

  /// Whether this rank should report rank 0's death itself: it is in no collective that would throw, and
  /// mpirun may kill the job before it enters one.
  [[nodiscard]] bool must_report_alone() const {
    return hub_lost_ && failure_ && !report_ && !own_.has_stopped && !reported_alone_;
  }
  void report_alone_if_due(std::unique_lock<std::mutex>& lock) {
    if (!must_report_alone() || Clock::now() < answer_by_) return;
    reported_alone_ = true;
    const ExitReport lonely = lonely_report();
    lock.unlock();
    settings_.on_report(lonely);
    lock.lock();
  }

  void take(const Frame& frame) {
    if (frame.kind == Kind::failure) {
      fail(parse_failure(frame.body));
    } else if (frame.kind == Kind::report) {
      report_ = parse_report(frame.body);
      fail(report_->failure);
      changed_.notify_all();
    } else {
      hub_left_ = true;
    }
  }

  void run() {
    std::unique_lock lock(mutex_);
    listen();  // frames may have arrived together with the welcome
    while (!leaving_) {
      const bool is_due = failure_ && (!answered_ || must_report_alone());
      const auto until = is_due ? answer_by_ : Clock::time_point::max();
      const bool listens = !hub_lost_ && !hub_left_;
      const short events = connection_.has_more_to_send() ? POLLIN | POLLOUT : POLLIN;
      std::array<pollfd, 3> waiting{{{wake_.get(), POLLIN, 0},
                                     {listens ? connection_.descriptor() : -1, events, 0},
                                     {dump_event_, POLLIN, 0}}};
      lock.unlock();
      poll_until(waiting, until);
      clear_event(wake_.get());
      lock.lock();
      if (waiting[1].revents != 0) listen();
      if (waiting[2].revents != 0) {
        clear_event(dump_event_);
        dump_(own_.calls());
      }
      answer_if_due();
      report_alone_if_due(lock);
    }
  }

  void listen() {
    connection_.flush();
    const bool is_open = connection_.receive();
    try {
      while (const std::optional<Frame> frame = connection_.next(from_the_hub)) take(*frame);
      if (is_open || hub_left_) return;
    } catch (const Error& error) {
      fail({JobFailure::Kind::threw, 0,
            fmt::format("rank 0 sends garbage to rank {}: {}", hello_.rank, error.what()), 0, 0});
    }
    lose_hub();
  }

  void lose_hub() {
    hub_lost_ = true;
    JobFailure death{JobFailure::Kind::died, 0,
                     "rank 0 has died: its process is gone, or its connections broke", 0, 0};
    if (failure_ && failure_->kind == JobFailure::Kind::network) {
      // Rank 0's death explains why a connection broke.
      death.communicator = failure_->communicator;
      death.sequence = failure_->sequence;
      failure_ = std::move(death);
    } else {
      fail(std::move(death));
    }
    changed_.notify_all();
  }

  const SocketWatchSettings settings_;
  const WatchHello& hello_ = settings_.hello;
  Connection connection_;
  FileDescriptor wake_;
  std::atomic<bool> failed_ = false;
  std::thread thread_;

  mutable std::mutex mutex_;  // protects everything below, and `connection_`
  std::condition_variable changed_;
  WatchedRank own_;
  std::vector<std::pair<int, const FlightTape*>> neighbours_;
  int dump_event_ = -1;
  std::function<void(const std::vector<FlightRecord>&)> dump_;
  std::optional<JobFailure> failure_;
  Clock::time_point answer_by_;
  bool answered_ = false;
  bool hub_left_ = false;
  bool hub_lost_ = false;
  bool leaving_ = false;
  bool reported_alone_ = false;
  std::optional<ExitReport> report_;
};

}  // namespace

std::unique_ptr<Watch> watch_by_socket(const SocketWatchSettings& settings) {
  return std::make_unique<SocketWatch>(settings);
}

}  // namespace ddl::collectives
