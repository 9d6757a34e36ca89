// The executor over a transport that hands over a few bytes at a time, as networks may.

#include "collectives/executor.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <vector>

#include "ddl/error.hpp"
#include "ddl/topology/lowering.hpp"

namespace ddl::collectives {
namespace {

using topology::RankMap;
using topology::Step;
using topology::StepKind;

/// Plays rank 1 for rank 0: takes `grain` bytes a call, and has `arriving` to read.
class TricklingTransport final : public Transport {
 public:
  explicit TricklingTransport(std::size_t grain) : grain_(grain) {}

  std::size_t write_some(int, std::span<const std::byte> bytes) override {
    const std::size_t length = std::min(bytes.size(), grain_);
    sent.insert(sent.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length));
    return length;
  }
  std::span<const std::byte> readable(int) override {
    return std::span<const std::byte>(arriving).subspan(used_, std::min(grain_, arriving.size() - used_));
  }
  void consume(int, std::size_t bytes) override { used_ += bytes; }
  std::uint32_t prepare_wait() override { return 0; }
  void cancel_wait() override {}
  void wait(std::uint32_t, Clock::time_point) override {}
  [[nodiscard]] int failed_rank() const override { return failed; }
  [[nodiscard]] bool has_left(int) const override { return left; }
  void announce_failure() override {}
  void announce_leaving() override {}

  std::vector<std::byte> sent;
  std::vector<std::byte> arriving;
  int failed = -1;
  bool left = false;

 private:
  std::size_t grain_;
  std::size_t used_ = 0;
};

template <typename T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

const RankMap& two_ranks() {
  static const RankMap map({"left", "right"});
  return map;
}

Operation operation_on(std::vector<double>& values) {
  return {"all_reduce", 7, reinterpret_cast<std::byte*>(values.data()), values.size(), DataType::f64,
          ReduceOp::sum};
}

// A fragment that ends inside an element would corrupt it.
TEST(Executor, ReducesElementsThatArriveInPieces) {
  for (std::size_t grain = 1; grain <= 20; ++grain) {
    TricklingTransport transport(grain);
    const std::vector<double> theirs{10, 20, 30, 40, 50};
    transport.arriving = bytes_of(theirs);
    std::vector<double> mine{1, 2, 3, 4, 5};
    Executor executor(transport, two_ranks(), 0, 0);
    executor.run({{StepKind::receive_reduce, 1, 0, 1, 5}, {StepKind::receive, 1, 1, 0, 1}},
                 operation_on(mine), Clock::time_point::max());
    EXPECT_EQ(mine, (std::vector<double>{50, 12, 23, 34, 45})) << "grain " << grain;
  }
}

// Bytes of two steps with the same peer would mix.
TEST(Executor, StepsOfOneDirectionWithOnePeerKeepTheirOrder) {
  TricklingTransport transport(3);
  const std::vector<double> theirs{10, 20, 30, 40};
  transport.arriving = bytes_of(theirs);
  std::vector<double> mine{1, 2, 3, 4, 5, 6};
  Executor executor(transport, two_ranks(), 0, 0);
  executor.run({{StepKind::send, 1, 0, 4, 6},
                {StepKind::receive, 1, 0, 2, 4},
                {StepKind::send, 1, 0, 5, 6},
                {StepKind::receive_reduce, 1, 0, 0, 2}},
               operation_on(mine), Clock::time_point::max());
  EXPECT_EQ(mine, (std::vector<double>{31, 42, 10, 20, 5, 6}));
  EXPECT_EQ(transport.sent, bytes_of(std::vector<double>{5, 6, 6}));
}

// A hang, or an error that does not say who is missing.
TEST(Executor, ADeadlineNamesThePeerAndHowFarItCame) {
  TricklingTransport transport(5);
  transport.arriving = bytes_of(std::vector<double>{1});
  std::vector<double> mine(4);
  Executor executor(transport, two_ranks(), 0, 0);
  try {
    executor.run({{StepKind::receive_reduce, 1, 0, 0, 4}}, operation_on(mine), Clock::now());
    FAIL() << "expected a timeout";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::timeout);
    const std::string text = error.what();
    for (const char* part :
         {"all_reduce #7", "32 bytes", "rank 0 (host left)", "rank 1 (host right) (8 of 32 bytes"}) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " is missing in: " << text;
    }
  }
}

// What a peer wrote before it left would be thrown away.
TEST(Executor, APeerThatHasLeftIsAnErrorOnlyIfSomethingIsMissing) {
  TricklingTransport transport(8);
  transport.left = true;
  transport.arriving = bytes_of(std::vector<double>{1, 2});
  std::vector<double> mine(2);
  Executor executor(transport, two_ranks(), 0, 0);
  executor.run({{StepKind::receive, 1, 0, 0, 2}}, operation_on(mine), Clock::time_point::max());
  EXPECT_EQ(mine, (std::vector<double>{1, 2}));
  try {
    executor.run({{StepKind::receive, 1, 0, 0, 1}}, operation_on(mine), Clock::time_point::max());
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::peer_failed);
  }
}

TEST(Executor, AFailedRankEndsTheWait) {
  TricklingTransport transport(8);
  transport.failed = 1;
  std::vector<double> mine(2);
  Executor executor(transport, two_ranks(), 0, 0);
  try {
    executor.run({{StepKind::receive, 1, 0, 0, 2}}, operation_on(mine), Clock::time_point::max());
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::peer_failed);
    EXPECT_NE(std::string(error.what()).find("rank 1 (host right) has failed"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace ddl::collectives
