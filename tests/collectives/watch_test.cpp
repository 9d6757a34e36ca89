// Watches: how ranks learn of a peer's failure, and what all of them report.

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/executor/operation.hpp"
#include "collectives/watch/connection.hpp"
#include "collectives/watch/exit_report.hpp"
#include "collectives/watch/flight_recorder.hpp"
#include "collectives/watch/socket_watch.hpp"
#include "ddl/error.hpp"
#include "support/thrown_error.hpp"

namespace ddl::collectives {
namespace {

constexpr unsigned all_kinds = ~0U;

CallId call_of(const char* name, std::uint64_t sequence, std::size_t count = 10) {
  return {name, 0, sequence, count, DataType::f32};
}

// Flight recorder.

// Users would not see which collective a hanging job is in, and how far it has come.
TEST(FlightRecorder, SaysWhatWasCalledAndHowFarItCame) {
  FlightRecorder recorder;
  CallId broadcast = call_of("broadcast", 7, 100);
  broadcast.communicator = 3;
  broadcast.root = 2;
  const std::uint64_t first = recorder.called(call_of("all_reduce", 6));
  const std::uint64_t second = recorder.called(broadcast);
  recorder.called(call_of("reduce_scatter", 8));
  recorder.begun(first);
  recorder.over(first, false);
  recorder.begun(second);
  const std::vector<FlightRecord> records = recorder.records();
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].describe(), "all_reduce #6 (sum of 10 f32, 40 bytes)");
  EXPECT_EQ(records[0].state, FlightRecord::State::finished);
  EXPECT_GE(records[0].called_ago, records[0].ended_ago);
  EXPECT_EQ(records[1].describe(), "broadcast #7 of communicator 3 (100 f32, 400 bytes, root 2)");
  EXPECT_EQ(records[1].state, FlightRecord::State::begun);
  EXPECT_EQ(records[2].state, FlightRecord::State::called);
  recorder.over(second, true);
  EXPECT_EQ(recorder.records()[1].state, FlightRecord::State::failed);
}

TEST(FlightRecorder, KeepsTheNewest) {
  FlightRecorder recorder;
  std::uint64_t oldest = 0;
  for (std::uint64_t i = 1; i <= 1000; ++i) {
    const std::uint64_t number = recorder.called(call_of("all_reduce", i));
    if (i == 1) oldest = number;
  }
  recorder.over(oldest, true);  // another record has taken its slot
  const std::vector<FlightRecord> records = recorder.records();
  ASSERT_EQ(records.size(), FlightTape::most_records);
  EXPECT_EQ(records.front().sequence, 1000 - FlightTape::most_records + 1);
  EXPECT_EQ(records.back().sequence, 1000u);
  for (const FlightRecord& record : records) EXPECT_EQ(record.state, FlightRecord::State::called);
}

// A dump that is made while ranks continue would contain garbage.
TEST(FlightRecorder, IsReadWhileItIsWritten) {
  FlightRecorder recorder;
  std::atomic<bool> over = false;
  std::vector<std::thread> writers;
  for (int t = 0; t < 2; ++t) {
    writers.emplace_back([&] {
      for (std::uint64_t i = 1; !over; ++i) {
        const std::uint64_t number = recorder.called(call_of("all_reduce", i, i));
        recorder.begun(number);
        recorder.over(number, false);
      }
    });
  }
  for (int i = 0; i < 200; ++i) {
    for (const FlightRecord& record : recorder.records()) {
      ASSERT_EQ(record.name, "all_reduce");
      ASSERT_EQ(record.count, record.sequence);
    }
  }
  over = true;
  for (std::thread& writer : writers) writer.join();
}

// Frames.

TEST(Frames, ComeOutAsTheyWentInHoweverTheyAreCut) {
  const std::string bytes = encoded({Frame::Kind::failure, "abc"}) + encoded({Frame::Kind::leave, ""}) +
                            encoded({Frame::Kind::state, std::string(5000, 'x')});
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, bytes.size()}) {
    FrameReader reader;
    std::vector<Frame> frames;
    for (std::size_t i = 0; i < bytes.size(); i += piece) {
      reader.put(std::string_view(bytes).substr(i, piece));
      while (const auto frame = reader.next(all_kinds)) frames.push_back(*frame);
    }
    ASSERT_EQ(frames.size(), 3u);
    EXPECT_EQ(frames[0].body, "abc");
    EXPECT_EQ(frames[1].kind, Frame::Kind::leave);
    EXPECT_EQ(frames[2].body.size(), 5000u);
  }
}

// Arbitrary bytes: tests/fuzz, `frames`, `stranger` and `invitation`.
TEST(Frames, AreRefusedBeforeAnythingIsBelieved) {
  const auto problem_of = [](std::string bytes, unsigned kinds = all_kinds) {
    FrameReader reader;
    reader.put(bytes);
    const Error error = test::error_of([&] { static_cast<void>(reader.next(kinds)); });
    EXPECT_EQ(error.code(), ErrorCode::corrupt_data);
    return std::string(error.what());
  };
  EXPECT_NE(problem_of("GET / HTTP/1.1\r\n").find("found 'GET / HTTP/1.1"), std::string::npos);
  EXPECT_NE(problem_of("D\n").find("expected a message of this library"), std::string::npos);
  std::string other_version = encoded({Frame::Kind::leave, ""});
  other_version[4] = 9;
  EXPECT_NE(problem_of(other_version).find("found version 9"), std::string::npos);
  EXPECT_NE(problem_of(encoded({Frame::Kind::report, ""}), FrameReader::bit(Frame::Kind::hello))
                .find("unexpected message"),
            std::string::npos);
  std::string unknown = encoded({Frame::Kind::leave, ""});
  unknown[6] = 77;
  EXPECT_NE(problem_of(unknown).find("unexpected message (77)"), std::string::npos);
  // Only the header has arrived: no memory is allocated for the size that it claims.
  std::string long_one = encoded({Frame::Kind::hello, ""});
  long_one[11] = '\x7f';
  EXPECT_NE(problem_of(long_one).find("expected 1024 at most"), std::string::npos);
}

// Reports.

TEST(ExitReport, ComesBackFromAMessageAndNamesTheCulpritFirst) {
  ExitReport report;
  report.failure = {JobFailure::Kind::died, 1, "rank 1 (host b, pid 12) has died", 0, 5};
  for (int rank = 0; rank < 3; ++rank) {
    RankReport each;
    each.rank = rank;
    each.host = rank == 1 ? "b" : "a";
    each.pid = 11 + rank;
    each.life = rank == 1 ? RankReport::Life::dead : RankReport::Life::answers;
    report.ranks.push_back(each);
  }
  FlightRecord record = FlightRecord{call_of("all_reduce", 5)};
  record.state = FlightRecord::State::begun;
  report.ranks[0].inside = report.ranks[0].same = record;
  report.ranks[0].waits_for = "rank 1";
  record.sequence = 4;
  record.state = FlightRecord::State::finished;
  report.ranks[1].last = record;
  report.ranks[2].scope = "root_only: checkpoint";
  const std::string text = parse_report(report.json()).text();
  EXPECT_EQ(text, report.text());
  EXPECT_LT(text.find("rank 1 (host b, pid 12): dead"), text.find("rank 0 (host a, pid 11)")) << text;
  for (const char* part : {"inside all_reduce #5 (sum of 10 f32, 40 bytes)", "waiting for rank 1",
                           "has not arrived at #5; its last was all_reduce #4", "root_only: checkpoint"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
  }
  for (const char* bad : {"", "{}", "[1]", "{\"failure\":3}", "\xff\xfe"}) {
    EXPECT_EQ(test::error_of([&] { static_cast<void>(parse_report(bad)); }).code(), ErrorCode::corrupt_data)
        << bad;
  }
}

TEST(ExitReport, SaysThatADeadlinePassedBecauseRanksDiffer) {
  ExitReport report;
  report.failure = {JobFailure::Kind::stuck, 0, "all_reduce #5: the deadline passed", 0, 5};
  for (int rank = 0; rank < 3; ++rank) {
    RankReport each;
    each.rank = rank;
    each.same = FlightRecord{call_of(rank == 2 ? "broadcast" : "all_reduce", 5)};
    report.ranks.push_back(each);
  }
  find_differences(report);
  EXPECT_EQ(report.failure.kind, JobFailure::Kind::differs);
  const std::string text = report.text();
  EXPECT_NE(text.find("ranks 0-1: called all_reduce #5"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 2: called broadcast #5"), std::string::npos) << text;
}

// The report would claim that ranks whose deadlines pass one call apart have made different calls, although
// each has made the other's call.
TEST(ExitReport, OfCallsThatAreNotTheSameSaysNothing) {
  ExitReport report;
  report.failure = {JobFailure::Kind::stuck, 1, "all_reduce #5: the deadline passed", 0, 5};
  for (int rank = 0; rank < 2; ++rank) {
    RankReport each;
    each.rank = rank;
    each.inside = each.same = FlightRecord{call_of("all_reduce", rank == 0 ? 6 : 5)};
    report.ranks.push_back(each);
  }
  find_differences(report);
  EXPECT_EQ(report.failure.kind, JobFailure::Kind::stuck);
  EXPECT_FALSE(report.ranks[0].same);
  EXPECT_TRUE(report.ranks[1].same);
}

TEST(ExitReport, OfManyRanksIsShort) {
  ExitReport report;
  for (int rank = 0; rank < 1000; ++rank) {
    RankReport each;
    each.rank = rank;
    each.life = RankReport::Life::answers;
    if (rank != 17) each.inside = FlightRecord{call_of("all_reduce", 5)};
    each.scope = rank == 0 ? "in root_only" : rank == 17 ? "" : "waits in root_only for rank 0";
    report.ranks.push_back(each);
  }
  EXPECT_LT(report.text().size(), 500u) << report.text();
  EXPECT_NE(report.text().find("rank 17: outside of collectives"), std::string::npos) << report.text();
  EXPECT_NE(report.text().find("bytes); in root_only\n"), std::string::npos) << report.text();
  EXPECT_NE(report.text().find("ranks 1-16, 18-999: inside all_reduce #5"), std::string::npos)
      << report.text();
}

// Hub and watches, all in this process.

class Meeting {
 public:
  explicit Meeting(int ranks, bool begins = true) : ranks_(ranks) {
    WatchHub::Settings settings;
    settings.ranks = ranks;
    settings.token = token;
    settings.warn = [this](const std::string& text) {
      const std::lock_guard lock(mutex_);
      warnings_.push_back(text);
      changed_.notify_all();
    };
    settings.on_report = [this](const ExitReport& report) {
      const std::lock_guard lock(mutex_);
      report_ = report;
      changed_.notify_all();
    };
    hub = std::make_unique<WatchHub>(std::move(settings));
    if (begins) hub->begin();
    recorders.resize(static_cast<std::size_t>(ranks));
    for (auto& recorder : recorders) recorder = std::make_unique<FlightRecorder>();
  }

  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
  ~Meeting() { hub.reset(); }  // first, because the hub still sends to the watches

  SocketWatchSettings settings_of(int rank) const {
    SocketWatchSettings settings;
    settings.hello.token = token;
    settings.hello.rank = rank;
    settings.hello.pid = 1000 + rank;
    settings.hello.host = fmt::format("h{}", rank);
    settings.invitation.addresses = {"127.0.0.1"};
    settings.invitation.port = hub->port();
    settings.until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    return settings;
  }
  std::unique_ptr<Watch> join(int rank) const {
    auto watch = watch_by_socket(settings_of(rank));
    watch->attach(*recorders[static_cast<std::size_t>(rank)], [] {});
    return watch;
  }
  std::vector<std::unique_ptr<Watch>> join_all() const {
    std::vector<std::unique_ptr<Watch>> watches;
    for (int rank = 0; rank < ranks_; ++rank) watches.push_back(join(rank));
    return watches;
  }
  /// A connection that speaks the protocol without being a watch, so that it can die.
  Connection raw(int rank) const {
    const SocketWatchSettings settings = settings_of(rank);
    Connection connection(
        connect_to_first(settings.invitation.addresses, settings.invitation.port, settings.until));
    connection.send({Frame::Kind::hello, to_message(settings.hello)});
    return connection;
  }

  ExitReport report() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return report_.has_value(); });
    return *report_;
  }
  std::vector<std::string> warnings(std::size_t least) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return warnings_.size() >= least; });
    return warnings_;
  }

  static constexpr JobToken token{3, 4};
  std::unique_ptr<WatchHub> hub;
  std::vector<std::unique_ptr<FlightRecorder>> recorders;

 private:
  int ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<ExitReport> report_;
  std::vector<std::string> warnings_;
};

// If a rank is killed, the others would wait until the deadline.
TEST(WatchHub, ADeathIsToldToAllWithWhatEachWasAbout) {
  Meeting meeting(3);
  const auto first = meeting.join(0);
  const auto second = meeting.join(1);
  auto third = std::make_unique<Connection>(meeting.raw(2));
  meeting.recorders[0]->begun(meeting.recorders[0]->called(call_of("all_reduce", 8)));
  const std::uint64_t over = meeting.recorders[1]->called(call_of("all_reduce", 7));
  meeting.recorders[1]->over(over, false);

  std::atomic<int> told = 0;
  first->attach(*meeting.recorders[0], [&] { ++told; });
  second->attach(*meeting.recorders[1], [&] { ++told; });
  EXPECT_EQ(first->set_scope("saves"), "");
  EXPECT_EQ(first->set_scope("in root_only"), "saves");
  third.reset();
  while (told < 2) std::this_thread::yield();
  EXPECT_TRUE(first->failed());
  first->stopped("rank 2 (all of it)");
  for (Watch* watch : {first.get(), second.get()}) {
    const ExitReport report = watch->report();
    EXPECT_EQ(report.failure.kind, JobFailure::Kind::died);
    EXPECT_EQ(report.failure.rank, 2);
    ASSERT_EQ(report.ranks.size(), 3u);
    EXPECT_EQ(report.ranks[0].inside->sequence, 8u);
    EXPECT_EQ(report.ranks[0].waits_for, "rank 2 (all of it)");
    EXPECT_EQ(report.ranks[0].scope, "in root_only");
    EXPECT_FALSE(report.ranks[1].inside);
    EXPECT_EQ(report.ranks[1].last->sequence, 7u);
    EXPECT_EQ(report.ranks[2].life, RankReport::Life::dead);
    EXPECT_EQ(report.ranks[2].pid, 1002);
    EXPECT_EQ(report.ranks[2].host, "h2");
  }
  EXPECT_EQ(meeting.report().failure.rank, 2);
}

// A job that decides during start-up to continue without a watch would report deaths.
TEST(WatchHub, WhoGoesBeforeTheBeginningIsDeadFromTheBeginningOn) {
  Meeting meeting(3, false);
  const auto watch = meeting.join(0);
  meeting.raw(1);  // connects and disconnects
  const auto last = meeting.join(2);
  EXPECT_FALSE(watch->failed());
  meeting.hub->begin();
  while (!watch->failed()) std::this_thread::yield();
  EXPECT_EQ(watch->failure().rank, 1);
  EXPECT_EQ(watch->failure().kind, JobFailure::Kind::died);
}

// The death of a process would not be noticed while its child is alive.
TEST(Connection, IsNotItsOwnersChildrens) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  Connection here{FileDescriptor(ends[0])};
  auto there = std::make_unique<Connection>(FileDescriptor(ends[1]));
  Connection moved = std::move(*there);
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  ASSERT_GT(child, 0);
  there.reset();
  EXPECT_TRUE(here.receive());
  { const Connection gone = std::move(moved); }
  pollfd readable{here.descriptor(), POLLIN, 0};
  EXPECT_EQ(poll(&readable, 1, 20'000), 1);
  EXPECT_FALSE(here.receive());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST(WatchHub, TheDeadAreAnsweredForByTheirHost) {
  Meeting meeting(2);
  const auto first = meeting.join(0);
  auto second = std::make_unique<Connection>(meeting.raw(1));
  FlightTape tape{};
  FlightRecorder of_the_dead(&tape);
  of_the_dead.begun(of_the_dead.called(call_of("reduce_scatter", 21)));
  first->add_neighbour(1, tape);
  second.reset();
  while (!first->failed()) std::this_thread::yield();
  EXPECT_EQ(first->report().ranks[1].inside->describe(), "reduce_scatter #21 (sum of 10 f32, 40 bytes)");
}

// The report would wait for a stopped process, which keeps its connections.
TEST(WatchHub, WhoDoesNotAnswerIsSilent) {
  Meeting meeting(2);
  const auto first = meeting.join(0);
  const Connection second = meeting.raw(1);
  first->announce({JobFailure::Kind::stuck, 0, "the deadline passed", 0, 3});
  first->stopped("");
  const ExitReport report = first->report();
  EXPECT_EQ(report.failure.text, "the deadline passed");
  EXPECT_EQ(report.ranks[0].life, RankReport::Life::answers);
  EXPECT_EQ(report.ranks[1].life, RankReport::Life::silent);
}

TEST(WatchHub, TheFirstFailureCounts) {
  Meeting meeting(3);
  const auto watches = meeting.join_all();
  watches[1]->announce({JobFailure::Kind::threw, 1, "out of data", 0, 0});
  while (!watches[2]->failed()) std::this_thread::yield();
  watches[2]->announce({JobFailure::Kind::threw, 2, "too late", 0, 0});
  EXPECT_EQ(watches[2]->report().failure.text, "out of data");
  EXPECT_EQ(watches[0]->report().failure.rank, 1);
}

// The report would name a broken connection instead of the death that broke it, because peers may see it
// first.
TEST(WatchHub, ADeathIsTheReasonOfABrokenConnection) {
  Meeting meeting(2);
  const auto first = meeting.join(0);
  auto second = std::make_unique<Connection>(meeting.raw(1));
  first->announce({JobFailure::Kind::network, 0, "the connection to rank 1 broke", 0, 3});
  second.reset();
  const ExitReport report = first->report();
  EXPECT_EQ(report.failure.kind, JobFailure::Kind::died);
  EXPECT_EQ(report.failure.sequence, 3u);
}

// The report would name a broken connection instead of the rank that gave up, because peers may see it first.
TEST(WatchHub, GivingUpIsTheReasonOfABrokenConnection) {
  Meeting meeting(2);
  const auto first = meeting.join(0);
  Connection second = meeting.raw(1);
  first->announce({JobFailure::Kind::network, 0, "the connection to rank 1 broke", 0, 3});
  const auto heard = [&](Frame::Kind kind) {
    while (!second.next(FrameReader::bit(kind))) second.receive();
  };
  heard(Frame::Kind::welcome);
  heard(Frame::Kind::failure);  // so that the hub knows of the failure
  second.send({Frame::Kind::failure, to_message({JobFailure::Kind::network, 1, "to rank 0 as well", 0, 4})});
  second.send({Frame::Kind::failure, to_message({JobFailure::Kind::threw, 1, "out of data", 0, 0})});
  second.send({Frame::Kind::failure, to_message({JobFailure::Kind::threw, 0, "and then some", 0, 0})});
  const ExitReport report = first->report();
  EXPECT_EQ(report.failure.kind, JobFailure::Kind::threw);
  EXPECT_EQ(report.failure.text, "out of data");
  EXPECT_EQ(report.failure.rank, 1);
  EXPECT_EQ(report.failure.sequence, 3u);
}

TEST(WatchHub, LeavingInOrderIsNoFailure) {
  Meeting meeting(2);
  auto watches = meeting.join_all();
  watches[1]->leave();
  watches[1].reset();
  watches[0]->announce({JobFailure::Kind::threw, 0, "of its own", 0, 0});
  const ExitReport report = watches[0]->report();
  EXPECT_EQ(report.failure.text, "of its own");
  EXPECT_EQ(report.ranks[1].life, RankReport::Life::left);
}

/// Makes rank 1's watch, to which a stand-in for rank 0 sends only `words`, through the `accepted`
/// connection.
std::unique_ptr<Watch> watch_of(
    FileDescriptor& accepted, const std::string& words,
    std::function<void(const ExitReport&)> on_report = [](const ExitReport&) {}) {
  const Listener listener(true);
  std::thread root([&] {
    while (!accepted.valid()) {
      accepted = FileDescriptor(accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!accepted.valid()) std::this_thread::yield();
    }
    EXPECT_EQ(write(accepted.get(), words.data(), words.size()), static_cast<ssize_t>(words.size()));
  });
  SocketWatchSettings settings;
  settings.hello.rank = 1;
  settings.invitation.addresses = {"127.0.0.1"};
  settings.invitation.port = listener.port;
  settings.until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  settings.on_report = std::move(on_report);
  auto watch = watch_by_socket(settings);
  root.join();
  return watch;
}

// The death of rank 0, which gathers the report, would not be noticed.
TEST(SocketWatch, TheDeathOfTheHubIsNoticed) {
  FileDescriptor accepted;
  const auto watch = watch_of(accepted, encoded({Frame::Kind::welcome, {}}));
  accepted = FileDescriptor();
  while (!watch->failed()) std::this_thread::yield();
  const ExitReport report = watch->report();
  EXPECT_EQ(report.failure.rank, 0);
  EXPECT_EQ(report.failure.kind, JobFailure::Kind::died);
  EXPECT_EQ(report.scope, "rank 1 alone");
}

// mpirun would end a rank that computes before it reports rank 0's death in its next collective.
TEST(SocketWatch, ARankThatComputesReportsTheHubsDeathItself) {
  FileDescriptor accepted;
  std::promise<ExitReport> reported;
  const auto watch = watch_of(accepted, encoded({Frame::Kind::welcome, {}}),
                              [&](const ExitReport& report) { reported.set_value(report); });
  accepted = FileDescriptor();
  const ExitReport report = reported.get_future().get();
  EXPECT_EQ(report.failure.rank, 0);
  EXPECT_EQ(report.failure.kind, JobFailure::Kind::died);
  EXPECT_EQ(report.scope, "rank 1 alone");
}

TEST(SocketWatch, ARankInACollectiveLeavesTheReportToIt) {
  FileDescriptor accepted;
  std::atomic<bool> reported = false;
  const auto watch =
      watch_of(accepted, encoded({Frame::Kind::welcome, {}}), [&](const ExitReport&) { reported = true; });
  watch->stopped("rank 0");
  accepted = FileDescriptor();
  while (!watch->failed()) std::this_thread::yield();
  std::this_thread::sleep_for(3 * Watch::time_to_stop);
  EXPECT_FALSE(reported);
}

TEST(SocketWatch, SaysWhyItCannotReachRank0) {
  std::uint16_t port = 0;
  { port = Listener(true).port; }
  SocketWatchSettings settings;
  settings.invitation.addresses = {"127.0.0.1", "no address"};
  settings.invitation.port = port;
  settings.until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  const Error error = test::error_of([&] { watch_by_socket(settings); });
  EXPECT_EQ(error.code(), ErrorCode::transport);
  EXPECT_NE(std::string(error.what()).find("127.0.0.1: Connection refused"), std::string::npos)
      << error.what();
}

// Port scanners, other jobs or other versions that connect to the port would disturb the job.
TEST(WatchHub, StrangersAreRefusedAndToldOfOnce) {
  Meeting meeting(2);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto visit = [&](const std::string& bytes) {
    const FileDescriptor socket = connect_to_first({"127.0.0.1"}, meeting.hub->port(), until);
    static_cast<void>(!write(socket.get(), bytes.data(), bytes.size()));
    // The hub closes the connection.
    timeval patience{10, 0};
    setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    char byte = 0;
    ssize_t received = -1;
    for (int i = 0; i < 1000 && received < 0; ++i) {
      received = read(socket.get(), &byte, 1);
      if (received < 0 && errno == ECONNRESET) received = 0;
      if (received < 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(received, 0);
  };
  visit("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  visit(std::string(100'000, '\0'));
  WatchHello wrong = meeting.settings_of(1).hello;
  wrong.token = {9, 9};
  visit(encoded({Frame::Kind::hello, to_message(wrong)}));
  wrong = meeting.settings_of(1).hello;
  wrong.rank = 7;
  visit(encoded({Frame::Kind::hello, to_message(wrong)}));
  visit(encoded({Frame::Kind::hello, "{\"token\":[]}"}));
  visit(encoded({Frame::Kind::failure, "{}"}));
  const auto watches = meeting.join_all();
  for (const auto& watch : watches) EXPECT_FALSE(watch->failed());
  EXPECT_EQ(meeting.warnings(1).size(), 1u);
  EXPECT_NE(meeting.warnings(1)[0].find("found 'GET / HTTP/1.1"), std::string::npos)
      << meeting.warnings(1)[0];
  // All ranks are connected, so no other connection is accepted.
  EXPECT_EQ(test::error_of([&] {
              static_cast<void>(connect_to_first({"127.0.0.1"}, meeting.hub->port(), until));
            }).code(),
            ErrorCode::transport);
}

// The same for a hub's garbage, read by a watch.
TEST(SocketWatch, AHubThatSendsGarbageIsNamed) {
  FileDescriptor accepted;
  const auto watch =
      watch_of(accepted, encoded({Frame::Kind::welcome, {}}) + "and more that means nothing at all");
  while (!watch->failed()) std::this_thread::yield();
  EXPECT_NE(watch->report().failure.text.find("rank 0 sends garbage to rank 1"), std::string::npos)
      << watch->report().failure.text;
}

TEST(WatchHub, APeerThatSendsGarbageIsNamed) {
  Meeting meeting(2);
  const auto first = meeting.join(0);
  Connection second = meeting.raw(1);
  while (!second.next(FrameReader::bit(Frame::Kind::welcome))) second.receive();
  const std::string garbage = "DDLw but not quite";
  EXPECT_EQ(write(second.descriptor(), garbage.data(), garbage.size()), static_cast<ssize_t>(garbage.size()));
  while (!first->failed()) std::this_thread::yield();
  EXPECT_NE(first->report().failure.text.find("rank 1 (host h1, pid 1001) sends garbage"), std::string::npos)
      << first->report().failure.text;
  // Otherwise the second watch would take the end of its connection for rank 0's death.
  std::optional<Frame> heard;
  while (!heard && second.receive()) heard = second.next(FrameReader::bit(Frame::Kind::failure));
  ASSERT_TRUE(heard);
  EXPECT_EQ(parse_failure(heard->body).rank, 1);
}

}  // namespace
}  // namespace ddl::collectives
