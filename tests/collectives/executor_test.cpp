// The executor on programs written by hand, over a transport that hands over a few bytes at a time, as
// networks may, and in an order of the test's choosing.

#include "collectives/executor.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ddl/allocation_count.hpp"
#include "ddl/error.hpp"
#include "thrown_error.hpp"

namespace ddl::collectives {
namespace {

using topology::Program;
using topology::RankMap;
using topology::Step;
using topology::StepKind;

/// Plays the other ranks for rank 0: takes `grain` bytes a call, and has `arriving` to read.
class TricklingTransport final : public Transport {
 public:
  explicit TricklingTransport(std::size_t grain) : grain_(grain) {}

  std::size_t write_some(int peer, std::span<const std::byte> bytes) override {
    if (!takes(peer)) return 0;
    const std::size_t length = std::min(bytes.size(), grain_);
    sent[peer].insert(sent[peer].end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length));
    return length;
  }
  std::span<const std::byte> readable(int peer) override {
    if (!gives(peer)) return {};
    const std::size_t used = used_[peer];
    return std::span<const std::byte>(arriving[peer])
        .subspan(used, std::min(grain_, arriving[peer].size() - used));
  }
  void consume(int peer, std::size_t bytes) override { used_[peer] += bytes; }
  std::uint32_t prepare_wait() override { return 0; }
  void cancel_wait() override {}
  void wait(std::uint32_t, Clock::time_point) override {}
  [[nodiscard]] int failed_rank() const override { return failed; }
  [[nodiscard]] bool has_left(int) const override { return left; }
  void announce_failure() override {}
  void announce_leaving() override {}

  std::map<int, std::vector<std::byte>> sent;
  std::map<int, std::vector<std::byte>> arriving;
  std::function<bool(int)> takes = [](int) { return true; };
  std::function<bool(int)> gives = [](int) { return true; };
  int failed = -1;
  bool left = false;

 private:
  std::size_t grain_;
  std::map<int, std::size_t> used_;
};

template <typename T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

const RankMap& three_ranks() {
  static const RankMap map({"left", "right", "far"});
  return map;
}

Step send(int peer, std::size_t begin, std::size_t end) {
  return {.kind = StepKind::send, .peer = peer, .begin = begin, .end = end};
}
Step receive(int peer, std::size_t begin, std::size_t end) {
  return {.kind = StepKind::receive, .peer = peer, .begin = begin, .end = end};
}
Step receive_reduce(int peer, std::size_t begin, std::size_t end) {
  return {.kind = StepKind::receive_reduce, .peer = peer, .begin = begin, .end = end};
}
Step local(StepKind kind, std::size_t begin, std::size_t end, std::size_t source = 0) {
  return {.kind = kind, .begin = begin, .end = end, .source = source};
}

Operation operation_on(std::vector<double>& values, ReduceOp op = ReduceOp::sum) {
  return {"all_reduce", 7, reinterpret_cast<std::byte*>(values.data()), values.size(), DataType::f64, op};
}

/// Fails instead of hanging.
Clock::time_point soon() { return Clock::now() + std::chrono::seconds(20); }

void run(Transport& transport, std::vector<Step> steps, std::vector<double>& values, std::size_t scratch = 0,
         ReduceOp op = ReduceOp::sum) {
  Executor executor(transport, three_ranks(), 0, 0);
  const PreparedProgram program({std::move(steps), scratch}, values.size());
  executor.run(program, operation_on(values, op), soon());
}

using test::error_of;

// A fragment that ends inside an element would corrupt it.
TEST(Executor, ReducesElementsThatArriveInPieces) {
  for (std::size_t grain = 1; grain <= 20; ++grain) {
    TricklingTransport transport(grain);
    transport.arriving[1] = bytes_of(std::vector<double>{10, 20, 30, 40, 50});
    std::vector<double> mine{1, 2, 3, 4, 5};
    run(transport, {receive_reduce(1, 1, 5), receive(1, 0, 1)}, mine);
    EXPECT_EQ(mine, (std::vector<double>{50, 12, 23, 34, 45})) << "grain " << grain;
  }
}

// Bytes of two steps with the same peer would mix.
TEST(Executor, StepsOfOneDirectionWithOnePeerKeepTheirOrder) {
  TricklingTransport transport(3);
  transport.arriving[1] = bytes_of(std::vector<double>{10, 20, 30, 40});
  std::vector<double> mine{1, 2, 3, 4, 5, 6};
  run(transport, {send(1, 4, 6), receive(1, 2, 4), send(1, 5, 6), receive_reduce(1, 0, 2)}, mine);
  EXPECT_EQ(mine, (std::vector<double>{31, 42, 10, 20, 5, 6}));
  EXPECT_EQ(transport.sent[1], bytes_of(std::vector<double>{5, 6, 6}));
}

// A send that is ready must not overtake one of its stream that is not: the peer would take it for the first.
TEST(Executor, AReadyStepWaitsForItsTurnInTheStream) {
  TricklingTransport transport(100);
  std::vector<double> mine{1, 2};
  // Element 0 comes only when the executor has had every chance to send element 1.
  int refusals = 0;
  transport.gives = [&](int) { return ++refusals > 5; };
  transport.arriving[2] = bytes_of(std::vector<double>{9});
  run(transport, {receive(2, 0, 1), send(1, 0, 1), send(1, 1, 2)}, mine);
  EXPECT_EQ(transport.sent[1], bytes_of(std::vector<double>{9, 2}));
}

// Tree and direct plans keep what comes in scratch memory and combine it there.
TEST(Executor, ReducesAndCopiesInBufferAndScratch) {
  for (const std::size_t grain : {1, 7, 1000}) {
    TricklingTransport transport(grain);
    transport.arriving[1] = bytes_of(std::vector<double>{10, 20});
    transport.arriving[2] = bytes_of(std::vector<double>{100, 200});
    std::vector<double> mine{1, 2, 3};
    run(transport,
        {local(StepKind::copy, 3, 5, 0), receive(1, 5, 7), local(StepKind::reduce, 0, 2, 5), receive(2, 5, 7),
         local(StepKind::reduce, 0, 2, 5), local(StepKind::copy, 2, 3, 0), send(1, 3, 5)},
        mine, 4);
    EXPECT_EQ(mine, (std::vector<double>{111, 222, 111}));
    EXPECT_EQ(transport.sent[1], bytes_of(std::vector<double>{1, 2}));
  }
}

// What comes early would overwrite what a slow peer has not taken yet.
TEST(Executor, AReceiveWaitsForTheSendOfWhatItOverwrites) {
  TricklingTransport transport(4);
  transport.arriving[2] = bytes_of(std::vector<double>{70, 80});
  int offers = 0;
  transport.takes = [&](int) { return ++offers % 10 == 0; };
  std::vector<double> mine{7, 8};
  run(transport, {send(1, 0, 2), receive(2, 0, 2)}, mine);
  EXPECT_EQ(transport.sent[1], bytes_of(std::vector<double>{7, 8}));
  EXPECT_EQ(mine, (std::vector<double>{70, 80}));
}

// Plans whose phases overlap would deadlock: each rank would wait for the first step of its list.
TEST(Executor, StepsThatDoNotConflictOvertakeEachOther) {
  TricklingTransport transport(5);
  transport.arriving[1] = bytes_of(std::vector<double>{10});
  transport.arriving[2] = bytes_of(std::vector<double>{20});
  // Rank 1 gives only after rank 2 has had what depends on rank 2's own bytes.
  transport.gives = [&](int peer) { return peer == 2 || transport.sent[2].size() == sizeof(double); };
  std::vector<double> mine{1, 2};
  run(transport, {receive_reduce(1, 0, 1), receive_reduce(2, 1, 2), send(2, 1, 2)}, mine);
  EXPECT_EQ(mine, (std::vector<double>{11, 22}));
  EXPECT_EQ(transport.sent[2], bytes_of(std::vector<double>{22}));
}

// The mean would be a sum, or be divided twice, or before the last contribution.
TEST(Executor, FinishDividesByTheRanksOnceAllIsIn) {
  TricklingTransport transport(3);
  transport.arriving[1] = bytes_of(std::vector<double>{10, 20});
  transport.arriving[2] = bytes_of(std::vector<double>{100, 200});
  std::vector<double> mine{1, 2};
  run(transport,
      {receive_reduce(1, 0, 2), receive_reduce(2, 0, 2), local(StepKind::finish, 0, 1),
       local(StepKind::finish, 1, 2), send(1, 0, 2)},
      mine, 0, ReduceOp::avg);
  EXPECT_EQ(mine, (std::vector<double>{37, 74}));
  EXPECT_EQ(transport.sent[1], bytes_of(mine));
}

// Steady step times.
TEST(Executor, ARepeatedProgramAllocatesNothing) {
#ifdef DDL_SANITIZED
  GTEST_SKIP() << "a sanitizer has its own operator new";
#endif
  TricklingTransport transport(3);
  transport.arriving[1].resize(1'000);
  transport.sent[1].reserve(1'000);
  std::vector<double> mine(4);
  Executor executor(transport, three_ranks(), 0, 0);
  const PreparedProgram large({{receive(1, 4, 12), local(StepKind::reduce, 0, 4, 8), send(1, 0, 4)}, 8}, 4);
  const PreparedProgram small({{receive(1, 4, 5), local(StepKind::copy, 0, 1, 4), send(1, 0, 1)}, 1}, 4);
  executor.run(large, operation_on(mine), soon());
  executor.run(small, operation_on(mine), soon());
  const long before = test::allocation_count();
  for (int i = 0; i < 4; ++i) {
    executor.run(large, operation_on(mine), soon());
    executor.run(small, operation_on(mine), soon());
  }
  EXPECT_EQ(test::allocation_count(), before);
}

// A damaged plan would write outside the caller's buffer.
TEST(Executor, ProgramsThatCannotRunAreRefused) {
  const std::vector<Step> bad{
      receive(1, 0, 6),                  // past scratch
      receive(1, 2, 4),                  // partly in either
      receive(-1, 0, 1),                 // from nobody
      send(1, 1, 1),                     // empty
      local(StepKind::reduce, 0, 1, 5),  // source past scratch
      local(StepKind::copy, 3, 5, 2),    // source partly in either
  };
  for (const Step& step : bad) {
    const Error error = error_of([&] { PreparedProgram({{step}, 2}, 3); });
    EXPECT_EQ(error.code(), ErrorCode::internal);
    EXPECT_NE(std::string(error.what()).find(to_string(step)), std::string::npos) << error.what();
  }
}

// A hang, or an error that does not say who is missing and in what.
TEST(Executor, ADeadlineNamesThePeerAndHowFarItCame) {
  TricklingTransport transport(5);
  transport.arriving[1] = bytes_of(std::vector<double>{1});
  std::vector<double> mine(4);
  Executor executor(transport, three_ranks(), 0, 0);
  Step step = receive_reduce(1, 0, 4);
  step.phase = 1;
  step.chunk = 3;
  const auto names = std::make_shared<PlanNames>(PlanNames{"the plan of it", {"first", "second phase"}});
  // Rank 2 is not waited for: its turn has not come.
  const PreparedProgram program({{step, send(2, 0, 4)}, 0}, 4, names);
  const Error error = error_of([&] { executor.run(program, operation_on(mine), Clock::now()); });
  EXPECT_EQ(error.code(), ErrorCode::timeout);
  const std::string text = error.what();
  for (const char* part :
       {"all_reduce #7", "32 bytes", "rank 0 (host left)",
        "rank 1 (host right) (8 of 32 bytes received in second phase, chunk 3)", "plan: the plan of it"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is missing in: " << text;
  }
  EXPECT_EQ(text.find("far"), std::string::npos) << text;
}

// What a peer wrote before it left would be thrown away.
TEST(Executor, APeerThatHasLeftIsAnErrorOnlyIfSomethingIsMissing) {
  TricklingTransport transport(8);
  transport.left = true;
  transport.arriving[1] = bytes_of(std::vector<double>{1, 2});
  std::vector<double> mine(2);
  run(transport, {receive(1, 0, 2)}, mine);
  EXPECT_EQ(mine, (std::vector<double>{1, 2}));
  EXPECT_EQ(error_of([&] { run(transport, {receive(1, 0, 1)}, mine); }).code(), ErrorCode::peer_failed);
}

TEST(Executor, AFailedRankEndsTheWait) {
  TricklingTransport transport(8);
  transport.failed = 1;
  std::vector<double> mine(2);
  const Error error = error_of([&] { run(transport, {receive(1, 0, 2)}, mine); });
  EXPECT_EQ(error.code(), ErrorCode::peer_failed);
  EXPECT_NE(std::string(error.what()).find("rank 1 (host right) has failed"), std::string::npos)
      << error.what();
}

}  // namespace
}  // namespace ddl::collectives
