// reduce_scatter, all_gather, reduce and broadcast, in place and out of place, blocking and async, among
// in-process ranks, against a serial result. Otherwise sharded optimisers and evaluation would get wrong
// numbers, or other memory would be overwritten.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "ddl/context.hpp"
#include "support/thrown_error.hpp"

namespace ddl {
namespace {

using test::error_of;

struct Case {
  std::vector<std::string> hosts;
  std::vector<std::size_t> counts;  // elements of a piece
};

std::vector<Case> cases() {
  const std::vector<std::size_t> few{0, 1, 2, 5, 1009, 70'001};
  return {
      {{"a"}, few},
      {{"a", "a"}, few},
      {{"a", "a", "a"}, few},
      {{"a", "b", "a", "b"}, few},
      {{"a", "a", "a", "b"}, few},
      {std::vector<std::string>(7, "a"), few},
      {{"a", "a", "a", "a", "b", "b", "b", "c"}, {1, 1009, 20'011}},
      {std::vector<std::string>(16, "a"), {1, 3, 4099}},
  };
}

InProcessOptions options_for(const Case& c) {
  InProcessOptions options;
  options.context.deadline = std::chrono::seconds(60);
  options.hosts = c.hosts;
  return options;
}

/// An element of a rank's buffer. Sums over 16 ranks are exact in every type.
int value(int rank, std::size_t i) {
  return static_cast<int>((i * 7 + static_cast<std::size_t>(rank) * 5 + i / 100) % 8);
}
int sum(int ranks, std::size_t i) {
  int result = 0;
  for (int rank = 0; rank < ranks; ++rank) result += value(rank, i);
  return result;
}

template <Element T>
T as(int number) {
  if constexpr (std::is_arithmetic_v<T>) return static_cast<T>(number);
  if constexpr (!std::is_arithmetic_v<T>) return T(static_cast<float>(number));
}

template <Element T>
std::vector<T> filled(std::size_t count, int rank) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = as<T>(value(rank, i));
  return values;
}

/// Memory between elements that must not change.
template <Element T>
class Fenced {
 public:
  explicit Fenced(std::size_t count) : values_(count + 2 * width, as<T>(fence)) {}
  Fenced(std::size_t count, const std::vector<T>& values) : Fenced(count) {
    std::ranges::copy(values, data());
  }
  T* data() { return values_.data() + width; }
  [[nodiscard]] bool is_whole() const {
    const auto is_fence = [](const T& x) { return x == as<T>(fence); };
    return std::all_of(values_.begin(), values_.begin() + width, is_fence) &&
           std::all_of(values_.end() - width, values_.end(), is_fence);
  }

 private:
  static constexpr int fence = 77;
  static constexpr std::ptrdiff_t width = 9;
  std::vector<T> values_;
};

struct Way {
  bool in_place;
  bool blocking;
};
constexpr Way ways[] = {{false, true}, {true, true}, {false, false}, {true, false}};

template <Element T>
void check_reduce_scatter(Communicator& c, std::size_t count, Way way) {
  constexpr DataType type = data_type_of<T>();
  const auto n = static_cast<std::size_t>(c.size());
  const std::size_t before = static_cast<std::size_t>(c.rank()) * count;
  const std::vector<T> given = filled<T>(n * count, c.rank());
  Fenced<T> input(n * count, given);
  Fenced<T> separate(count);
  T* output = way.in_place ? input.data() + before : separate.data();
  if (way.blocking) {
    c.reduce_scatter(input.data(), output, count, type, ReduceOp::sum);
  } else {
    c.reduce_scatter_async(input.data(), output, count, type, ReduceOp::sum).wait();
  }
  for (std::size_t i = 0; i < count; ++i) {
    ASSERT_EQ(output[i], as<T>(sum(c.size(), before + i))) << "rank " << c.rank() << ", element " << i;
  }
  if (!way.in_place) {
    ASSERT_TRUE(std::ranges::equal(std::span(input.data(), n * count), given)) << "the input has changed";
  }
  ASSERT_TRUE(input.is_whole() && separate.is_whole()) << "written beside the buffer";
}

template <Element T>
void check_all_gather(Communicator& c, std::size_t count, Way way) {
  constexpr DataType type = data_type_of<T>();
  const auto n = static_cast<std::size_t>(c.size());
  const std::size_t before = static_cast<std::size_t>(c.rank()) * count;
  Fenced<T> separate(count, filled<T>(count, c.rank()));
  Fenced<T> output(n * count);
  T* input = separate.data();
  if (way.in_place) {
    input = output.data() + before;
    std::copy_n(separate.data(), count, input);
  }
  if (way.blocking) {
    c.all_gather(input, output.data(), count, type);
  } else {
    c.all_gather_async(input, output.data(), count, type).wait();
  }
  for (std::size_t i = 0; i < n * count; ++i) {
    ASSERT_EQ(output.data()[i], as<T>(value(static_cast<int>(i / count), i % count)))
        << "rank " << c.rank() << ", element " << i;
  }
  ASSERT_TRUE(output.is_whole() && separate.is_whole()) << "written beside the buffer";
}

template <Element T>
void check_reduce(Communicator& c, std::size_t count, Way way, int root) {
  constexpr DataType type = data_type_of<T>();
  const bool is_root = c.rank() == root;
  const std::vector<T> given = filled<T>(count, c.rank());
  Fenced<T> input(count, given);
  Fenced<T> separate(count);
  T* output = way.in_place ? input.data() : is_root ? separate.data() : nullptr;
  if (way.blocking) {
    c.reduce(input.data(), output, count, type, ReduceOp::sum, root);
  } else {
    c.reduce_async(input.data(), output, count, type, ReduceOp::sum, root).wait();
  }
  for (std::size_t i = 0; is_root && i < count; ++i) {
    ASSERT_EQ(output[i], as<T>(sum(c.size(), i))) << "root " << root << ", element " << i;
  }
  if (!is_root || !way.in_place) {
    ASSERT_TRUE(std::ranges::equal(std::span(input.data(), count), given)) << "the input has changed";
  }
  ASSERT_TRUE(input.is_whole() && separate.is_whole()) << "written beside the buffer";
}

template <Element T>
void check_broadcast(Communicator& c, std::size_t count, Way way, int root) {
  constexpr DataType type = data_type_of<T>();
  const bool is_root = c.rank() == root;
  Fenced<T> input(count, filled<T>(count, root));
  Fenced<T> output(count);
  if (way.in_place && is_root) std::copy_n(input.data(), count, output.data());
  const T* from = way.in_place ? output.data() : is_root ? input.data() : nullptr;
  if (way.blocking) {
    c.broadcast(from, output.data(), count, type, root);
  } else {
    c.broadcast_async(from, output.data(), count, type, root).wait();
  }
  for (std::size_t i = 0; i < count; ++i) {
    ASSERT_EQ(output.data()[i], as<T>(value(root, i))) << "root " << root << ", element " << i;
  }
  ASSERT_TRUE(output.is_whole()) << "written beside the buffer";
}

template <Element T>
void check_all_reduce(Communicator& c, std::size_t count, Way way) {
  constexpr DataType type = data_type_of<T>();
  const std::vector<T> given = filled<T>(count, c.rank());
  Fenced<T> input(count, given);
  Fenced<T> separate(count);
  T* output = way.in_place ? input.data() : separate.data();
  if (way.blocking) {
    c.all_reduce(input.data(), output, count, type, ReduceOp::sum);
  } else {
    c.all_reduce_async(input.data(), output, count, type, ReduceOp::sum).wait();
  }
  for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(output[i], as<T>(sum(c.size(), i))) << "element " << i;
  if (!way.in_place) {
    ASSERT_TRUE(std::ranges::equal(std::span(input.data(), count), given)) << "the input has changed";
  }
  ASSERT_TRUE(input.is_whole() && separate.is_whole()) << "written beside the buffer";
}

/// Calls `check(communicator, count, way)` for all cases, on every rank.
template <typename Check>
void in_every_case(const Check& check) {
  for (const Case& c : cases()) {
    run_in_process(
        static_cast<int>(c.hosts.size()),
        [&](Context& context) {
          for (const std::size_t count : c.counts) {
            for (const Way way : ways) {
              SCOPED_TRACE(fmt::format("{} ranks, last on {}, {} elements, {}, {}", c.hosts.size(),
                                       c.hosts.back(), count, way.in_place ? "in place" : "out of place",
                                       way.blocking ? "blocking" : "async"));
              check(context.communicator(), count, way);
            }
          }
        },
        options_for(c));
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(Collectives, ReduceScatter) { in_every_case(check_reduce_scatter<float>); }
TEST(Collectives, AllGather) { in_every_case(check_all_gather<float>); }
TEST(Collectives, AllReduce) { in_every_case(check_all_reduce<float>); }
TEST(Collectives, ReduceToEveryRoot) {
  in_every_case([](Communicator& c, std::size_t count, Way way) {
    for (int root = 0; root<c.size(); root += c.size()> 8 ? 7 : 1) {
      check_reduce<std::int32_t>(c, count, way, root);
    }
  });
}
TEST(Collectives, BroadcastFromEveryRoot) {
  in_every_case([](Communicator& c, std::size_t count, Way way) {
    for (int root = 0; root<c.size(); root += c.size()> 8 ? 7 : 1) {
      check_broadcast<std::int64_t>(c, count, way, root);
    }
  });
}

// Sums of some type would be computed as if they were of another type.
TEST(Collectives, EveryType) {
  const auto all = [](auto zero, Communicator& c) {
    using T = decltype(zero);
    for (const Way way : ways) {
      check_reduce_scatter<T>(c, 333, way);
      check_all_gather<T>(c, 333, way);
      check_all_reduce<T>(c, 333, way);
      check_reduce<T>(c, 333, way, 2);
      check_broadcast<T>(c, 333, way, 1);
    }
  };
  run_in_process(
      5,
      [&](Context& context) {
        Communicator& c = context.communicator();
        all(std::uint8_t{}, c);
        all(std::int32_t{}, c);
        all(std::int64_t{}, c);
        all(float{}, c);
        all(double{}, c);
        all(float16{}, c);
        all(bfloat16{}, c);
      },
      options_for({{"a", "a", "b", "b", "b"}, {}}));
}

// Means would be divided by the number of ranks more than once, or not at all.
TEST(Collectives, MeansOfReduceAndReduceScatter) {
  run_in_process(
      6,
      [](Context& context) {
        Communicator& c = context.communicator();
        std::vector<double> input(6 * 4, 3.0 * c.rank());
        std::vector<double> output(24, -1);
        c.reduce_scatter(input.data(), output.data(), 4, DataType::f64, ReduceOp::avg);
        EXPECT_EQ(std::vector<double>(output.begin(), output.begin() + 4), std::vector<double>(4, 7.5));
        EXPECT_EQ(output[4], -1);
        c.reduce(input.data(), output.data(), 24, DataType::f64, ReduceOp::avg, 5);
        EXPECT_EQ(output[23], c.rank() == 5 ? 7.5 : -1);
      },
      options_for({std::vector<std::string>(6, "a"), {}}));
}

// A report would name an earlier call and mislead its reader. Covers small calls, which take a separate path,
// large ones, and async ones.
TEST(Collectives, ReportsNameTheCallThatIsWaitedFor) {
  std::string report;
  const Error first = error_of([&] {
    run_in_process(2, [&](Context& context) {
      Communicator& all = context.communicator();
      std::vector<float> values(100'000, 1);
      for (int i = 0; i < 40; ++i) {
        all.all_reduce(std::span(values).first(i % 4 == 0 ? 100'000 : 2));
        if (i % 5 == 0) all.all_reduce_async(std::span(values).first(3)).wait();
      }
      if (context.rank() == 1) throw Error(ErrorCode::io, "rank 1 has had enough");
      const Error error = error_of([&] { all.all_reduce(std::span(values)); });
      report = error.what();
      throw error;
    });
  });
  EXPECT_EQ(first.code(), ErrorCode::io);
  EXPECT_NE(report.find("rank 0 (host "), std::string::npos) << report;
  EXPECT_NE(report.find("inside all_reduce #49 (sum of 100000 f32"), std::string::npos) << report;
  EXPECT_NE(report.find("its last was all_reduce #48 (sum of 2 f32"), std::string::npos) << report;
}

// A caller's mistake would crash, corrupt memory, or leave the other ranks waiting.
TEST(Collectives, RefusesArgumentsThatCannotWorkAndGoesOn) {
  run_in_process(
      3,
      [](Context& context) {
        Communicator& c = context.communicator();
        std::vector<float> a(100);
        std::vector<float> b(100);
        constexpr DataType f32 = DataType::f32;
        constexpr ReduceOp op = ReduceOp::sum;
        constexpr std::size_t huge = std::numeric_limits<std::size_t>::max() / 4;
        const auto refused = [](const auto& call, const char* part) {
          const Error error = error_of(call);
          EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
          EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
        };
        refused([&] { c.all_reduce(a.data(), nullptr, 9, f32, op); }, "all_reduce: the output is null");
        refused([&] { c.all_reduce(nullptr, b.data(), 9, f32, op); }, "the input is null");
        refused([&] { c.all_reduce(a.data(), a.data() + 1, 9, f32, op); }, "overlap");
        refused([&] { c.all_reduce(a.data() + 8, a.data(), 9, f32, op); }, "overlap");
        refused([&] { c.all_reduce(a.data(), b.data(), huge, f32, op); }, "more than memory can hold");
        refused([&] { c.all_reduce(a.data(), b.data(), 9, static_cast<DataType>(99), op); },
                "type number 99");
        refused([&] { c.all_reduce(a.data(), b.data(), 9, f32, static_cast<ReduceOp>(9)); },
                "operation number");
        refused([&] { c.reduce_scatter(a.data(), a.data() + 10 * c.rank() + 1, 10, f32, op); }, "overlap");
        refused([&] { c.reduce_scatter(a.data(), b.data(), huge / 2, f32, op); }, "pieces");
        refused([&] { c.all_gather(a.data(), nullptr, 9, f32); }, "all_gather: the output is null");
        refused([&] { c.all_gather(a.data() + 10 * c.rank() + 1, a.data(), 10, f32); }, "overlap");
        refused([&] { c.reduce(a.data(), b.data(), 9, f32, op, 3); }, "root 3 does not exist");
        refused([&] { c.reduce(nullptr, b.data(), 9, f32, op, 1); }, "reduce: the input is null");
        refused([&] { c.broadcast(a.data(), b.data(), 9, f32, -1); }, "root -1 does not exist");
        refused([&] { c.broadcast(nullptr, b.data(), 9, f32, c.rank()); }, "the root's input is null");
        // _async calls throw it too, because handles report only later errors.
        refused([&] { c.all_reduce_async(a.data(), nullptr, 9, f32, op); }, "the output is null");
        check_all_reduce<float>(c, 100, {true, true});
      },
      options_for({std::vector<std::string>(3, "a"), {}}));
}

/// Floats that are sent as a span could be received as integers.
TEST(Collectives, ABroadcastOfAnotherTypeIsNoticed) {
  const Error error = error_of([] {
    run_in_process(2, [](Context& context) {
      std::vector<float> floats(10, 1.5f);
      std::vector<std::int32_t> integers(10);
      if (context.rank() == 0) {
        context.communicator().broadcast(std::span(floats));
      } else {
        context.communicator().broadcast(std::span(integers));
      }
    });
  });
  EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
  for (const char* const type : {"f32", "i32"})
    EXPECT_NE(std::string(error.what()).find(type), std::string::npos) << type << " in: " << error.what();
}

}  // namespace
}  // namespace ddl
