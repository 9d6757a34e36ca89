#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "collectives/watch/socket_watch.hpp"
#include "collectives/watch/watch.hpp"
#include "topology/json_fields.hpp"
#include "topology/refuse.hpp"

namespace ddl::collectives {
namespace {

using Kind = Frame::Kind;
using Life = RankReport::Life;

/// Limits connections whose peer is not known yet, because strangers may hold connections open.
constexpr std::size_t most_unknown = 64;

/// The hub needs a descriptor per rank. The soft limit is often 1024 and the hard limit far higher.
void make_room_for_descriptors(int ranks) {
  constexpr rlim_t others = 256;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min(limit.rlim_max, static_cast<rlim_t>(ranks) + others);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

void describe(auto& fields, topology::MaybeConst<WatchHello> auto& hello) {
  fields("token", hello.token);
  fields("rank", hello.rank);
  fields("pid", hello.pid);
  fields("host", hello.host);
}

std::string to_message(const WatchHello& hello) { return topology::json_line(hello); }
WatchHello parse_hello(std::string_view message) {
  return topology::parsed_json<WatchHello>(message, "a hello message");
}

struct WatchHub::Peer {
  explicit Peer(FileDescriptor socket) : connection(std::move(socket)) {}
  Connection connection;
  int rank = -1;  // -1 until its hello has arrived
  bool gone = false;
  bool ignored = false;  // sent malformed messages; nothing more is read from it
};

struct WatchHub::State {
  explicit State(Settings given)
      : settings(std::move(given)),
        listener(settings.loopback_only),
        wake(new_event()),
        ranks(as_index(settings.ranks)) {
    for (int rank = 0; rank < settings.ranks; ++rank) ranks[as_index(rank)].report.rank = rank;
  }

  struct Rank {
    bool joined = false;
    bool answered = false;  // has reported its state, or cannot
    RankReport report;
    std::optional<RankReport> by_others;  // what another rank of its host reports about it
  };

  Settings settings;
  Listener listener;
  FileDescriptor wake;
  std::atomic<bool> stopping = false;
  std::atomic<bool> begun = false;
  std::vector<JobFailure> early_deaths;  // deaths before `begin`
  std::vector<std::unique_ptr<Peer>> peers;
  std::vector<Rank> ranks;
  int joined = 0;
  bool warned = false;
  std::optional<JobFailure> failure;
  Clock::time_point report_by;
  bool reported = false;

  [[nodiscard]] Rank& of(const Peer& peer) { return ranks[as_index(peer.rank)]; }

  void warn(const std::string& text) {
    if (!std::exchange(warned, true)) settings.warn(text);
  }

  void wait() {
    std::vector<pollfd> waiting{{wake.get(), POLLIN, 0}, {listener.socket.get(), POLLIN, 0}};
    for (const auto& peer : peers) {
      const int reads = peer->ignored ? 0 : POLLIN;
      const int writes = peer->connection.has_more_to_send() ? POLLOUT : 0;
      waiting.push_back({peer->connection.descriptor(), static_cast<short>(reads | writes), 0});
    }
    if (poll_until(waiting, failure && !reported ? report_by : Clock::time_point::max()) < 0) return;
    clear_event(wake.get());
    for (std::size_t i = 0; i + 2 < waiting.size(); ++i) {
      const int found = waiting[i + 2].revents;
      if (found == 0) continue;
      peers[i]->ignored ? flush(*peers[i], (found & (POLLHUP | POLLERR)) != 0) : attend_to(*peers[i]);
    }
    std::erase_if(peers, [](const auto& peer) { return peer->gone; });
    if ((waiting[1].revents & POLLIN) != 0) accept_one();
  }

  void accept_one() {
    FileDescriptor visitor(accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!visitor.valid()) {
      if (errno == EMFILE || errno == ENFILE) {
        warn("rank 0 has no file descriptors left for its peers' connections (ulimit -n)");
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      return;
    }
    const auto unknown = std::ranges::count(peers, -1, [](const auto& peer) { return peer->rank; });
    if (static_cast<std::size_t>(unknown) >= most_unknown) return;
    peers.push_back(std::make_unique<Peer>(std::move(visitor)));
  }

  static void flush(Peer& peer, bool is_closed) {
    peer.connection.flush();
    peer.gone = peer.gone || is_closed;
  }

  void attend_to(Peer& peer) {
    peer.connection.flush();
    const bool is_open = peer.connection.receive();
    try {
      const unsigned expected = peer.rank < 0
                                    ? FrameReader::bit(Kind::hello)
                                    : FrameReader::bit(Kind::failure) | FrameReader::bit(Kind::state) |
                                          FrameReader::bit(Kind::leave);
      while (const std::optional<Frame> frame = peer.connection.next(expected)) {
        take(peer, *frame);
        if (peer.gone || frame->kind == Kind::hello) break;
      }
    } catch (const Error& error) {
      refuse(peer, error.what());
    }
    if (!is_open && !peer.gone) peer.ignored ? flush(peer, true) : lose(peer);
  }

  void take(Peer& peer, const Frame& frame) {
    switch (frame.kind) {
      case Kind::hello:
        return welcome(peer, parse_hello(frame.body));
      case Kind::failure: {
        JobFailure told = parse_failure(frame.body);
        return fail(std::move(told));
      }
      case Kind::state:
        return note_state(peer, frame.body);
      case Kind::leave:
        of(peer).report.life = Life::left;
        peer.gone = true;
        return;
      default:
        return;
    }
  }

  void welcome(Peer& peer, const WatchHello& hello) {
    if (hello.token != settings.token) throw Error(ErrorCode::corrupt_data, "found another job's token");
    if (hello.rank < 0 || hello.rank >= settings.ranks || ranks[as_index(hello.rank)].joined) {
      fail_with(ErrorCode::corrupt_data, "found rank {}, which {}", hello.rank,
                hello.rank < 0 || hello.rank >= settings.ranks ? "does not exist" : "has already connected");
    }
    peer.rank = hello.rank;
    Rank& rank = of(peer);
    rank.joined = true;
    rank.report.pid = hello.pid;
    rank.report.host = hello.host;
    rank.report.life = Life::answers;
    if (++joined == settings.ranks) {
      listener.socket = FileDescriptor();  // poll skips descriptor -1
      for (const auto& other : peers) other->gone = other->gone || other->rank < 0;
    }
    peer.connection.send({Kind::welcome, {}});
    if (failure) peer.connection.send({Kind::failure, to_message(*failure)});
  }

  /// The message holds the peer's own report first, then those on other ranks of its host.
  void note_state(Peer& peer, const std::string& body) {
    ExitReport told = parse_report(body);
    if (told.ranks.empty() || told.ranks.front().rank != peer.rank) {
      throw Error(ErrorCode::corrupt_data, "expected a rank's state to begin with its own report");
    }
    Rank& rank = of(peer);
    rank.answered = true;
    RankReport& own = told.ranks.front();
    rank.report.scope = std::move(own.scope);
    rank.report.inside = std::move(own.inside);
    rank.report.last = std::move(own.last);
    rank.report.same = std::move(own.same);
    rank.report.waits_for = std::move(own.waits_for);
    for (RankReport& other : std::span(told.ranks).subspan(1)) {
      if (other.rank < 0 || other.rank >= settings.ranks) continue;
      ranks[as_index(other.rank)].by_others = std::move(other);
    }
  }

  /// Refuses a peer that sends malformed messages. If it is a rank, the job fails. Its connection stays open
  /// for the failure and the report, because it would take a closed connection for rank 0's death.
  void refuse(Peer& peer, const std::string& why) {
    if (peer.rank < 0) {
      peer.gone = true;
      warn(
          fmt::format("refused a connection to the port where the job's ranks meet: {}. Further ones are "
                      "refused without a warning",
                      why));
      return;
    }
    peer.ignored = true;
    of(peer).answered = true;
    of(peer).report.life = Life::silent;
    fail({JobFailure::Kind::threw, peer.rank,
          fmt::format("{} sends garbage to rank 0: {}", name_of(of(peer).report), why), 0, 0});
  }

  void lose(Peer& peer) {
    peer.gone = true;
    if (peer.rank < 0) return;
    Rank& rank = of(peer);
    if (rank.answered) return;  // The rank has reported its state and closed the connection normally.
    rank.report.life = Life::dead;
    rank.answered = true;
    JobFailure death{JobFailure::Kind::died, peer.rank,
                     name_of(rank.report) + " has died: its process is gone", 0, 0};
    if (failure || begun.load(std::memory_order_acquire)) {
      fail(std::move(death));
    } else {
      early_deaths.push_back(std::move(death));
    }
  }

  void tell_of_early_deaths() {
    if (early_deaths.empty() || !begun.load(std::memory_order_acquire)) return;
    fail(std::move(early_deaths.front()));
    early_deaths.clear();
  }

  /// The first failure counts, except that a broken connection is replaced by a later failure that explains
  /// it: peers see a rank's connections break before its own message arrives or its death is noticed.
  void fail(JobFailure next) {
    if (failure) {
      if (reported || failure->kind != JobFailure::Kind::network) return;
      if (next.kind == JobFailure::Kind::network || next.kind == JobFailure::Kind::stuck) return;
      if (next.sequence == 0) {
        next.communicator = failure->communicator;
        next.sequence = failure->sequence;
      }
      failure = std::move(next);
      return;
    }
    failure = std::move(next);
    report_by = Clock::now() + Watch::time_to_report;
    for (const auto& peer : peers) {
      if (peer->rank >= 0 && !peer->gone) peer->connection.send({Kind::failure, to_message(*failure)});
    }
  }

  void report_if_due() {
    if (!failure || reported) return;
    const bool all = std::ranges::all_of(
        ranks, [](const Rank& rank) { return rank.answered || rank.report.life == Life::left; });
    if (!all && Clock::now() < report_by) return;
    reported = true;
    ExitReport report{*failure, {}, {}};
    for (Rank& rank : ranks) {
      if (!rank.answered && rank.report.life == Life::answers) rank.report.life = Life::silent;
      if (rank.by_others && !rank.report.inside && !rank.report.last) {
        rank.report.inside = rank.by_others->inside;
        rank.report.last = rank.by_others->last;
        rank.report.same = rank.by_others->same;
      }
      report.ranks.push_back(rank.report);
    }
    find_differences(report);
    // The report is written before any rank gets it, and rank 0 gets it last: a rank that has it throws, and
    // may abort the job and with it this process.
    settings.on_report(report);
    const Frame frame{Kind::report, report.json()};
    for (const auto& peer : peers) {
      if (peer->rank > 0) peer->connection.send(frame);
    }
    for (const auto& peer : peers) {
      if (peer->rank == 0) peer->connection.send(frame);
    }
  }
};

WatchHub::WatchHub(Settings settings) : state_(std::make_unique<State>(std::move(settings))) {
  make_room_for_descriptors(state_->settings.ranks);
  port_ = state_->listener.port;
  thread_ = std::thread([this] { run(); });
}

void WatchHub::run() {
  State& state = *state_;
  while (!state.stopping.load(std::memory_order_acquire) || (state.failure && !state.reported)) {
    state.wait();
    state.tell_of_early_deaths();
    state.report_if_due();
  }
  for (const auto& peer : state.peers) {
    if (peer->rank < 0) continue;
    peer->connection.send({Kind::leave, {}});
    peer->connection.flush_for(time_to_say_goodbye);
  }
}

void WatchHub::begin() {
  state_->begun.store(true, std::memory_order_release);
  signal_event(state_->wake.get());
}

WatchHub::~WatchHub() {
  state_->stopping.store(true, std::memory_order_release);
  signal_event(state_->wake.get());
  thread_.join();
}

}  // namespace ddl::collectives
