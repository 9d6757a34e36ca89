// The steps of a reducer of gradients on a device, with a queue that the host works off: late, as a device
// does.

#include "ddl/gradients/stream_reducer.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "ddl/context.hpp"
#include "support/thrown_error.hpp"

namespace ddl {
namespace {

using gradient_pass::Bucket;
using gradient_pass::Lane;
using gradient_pass::Outcome;
using test::error_of;
using test::message_of;

/// Does nothing until somebody waits.
class HostQueue : public GradientQueue {
 public:
  static constexpr std::uint32_t blocks = 3;
  static constexpr std::uint32_t threads = 8;

  HostQueue(Context& context, bool reaches) : context_(context), reaches_(reaches) {}

  std::byte* allocate_shared(std::size_t bytes) override {
    context_.communicator().barrier();  // collective
    shared_bytes += bytes;
    return allocate(bytes);
  }
  std::byte* allocate(std::size_t bytes) override {
    work_off();
    return memory_.emplace_back(std::make_unique<std::byte[]>(bytes + 1)).get();
  }
  void upload(void* to, const void* from, std::size_t bytes) override {
    work_off();
    std::memcpy(to, from, bytes);
  }
  [[nodiscard]] bool reaches(const void*, std::size_t) const override { return reaches_; }

  void follow(Stream stream) override { log.push_back(fmt::format("follow {}", fmt::ptr(stream))); }
  void precede(Stream stream) override {
    log.push_back(fmt::format("precede {}", fmt::ptr(stream)));
    work_off();
  }
  void zero(void* data, std::size_t bytes) override {
    queue([=] { std::memset(data, 0, bytes); });
  }
  void set(double* to, double value) override {
    queue([=] { *to = value; });
  }
  void add_scaled(float* target, const float* source, std::size_t count, double weight) override {
    each_lane([=](const Lane& lane) { gradient_pass::add_scaled(target, source, count, weight, lane); });
  }
  void pack(const Bucket& bucket, double weight, bool adds) override {
    log.push_back("pack");
    each_lane([=](const Lane& lane) { gradient_pass::pack(bucket, weight, adds, lane); });
  }
  void all_reduce(void* data, std::size_t count, DataType type) override {
    log.push_back(fmt::format("all_reduce {} {}", count, to_string(type)));
    queue([=, this] { context_.communicator().all_reduce(data, data, count, type, ReduceOp::sum); });
  }
  void unpack(const Bucket& bucket, const Unpacking& unpacking) override {
    log.push_back("unpack");
    queue([=] {
      const double factor = unpacking.weight == nullptr ? 1 : 1 / *unpacking.weight;
      for (std::uint32_t block = 0; block < blocks; ++block) {
        double sum = 0;
        for (std::uint32_t thread = 0; thread < threads; ++thread) {
          const Lane lane = {block, blocks, thread, threads};
          if (unpacking.exact_squares != nullptr) {
            gradient_pass::unpack_exactly(bucket, factor, unpacking.own, lane,
                                          gradient_pass::AddInTurn{*unpacking.exact_squares});
          } else {
            sum += gradient_pass::unpack(bucket, factor, unpacking.own, lane);
          }
        }
        if (unpacking.sums_of_squares != nullptr) unpacking.sums_of_squares[block] = sum;
      }
    });
  }
  [[nodiscard]] std::size_t sums_of_unpacking() const noexcept override { return blocks; }
  void add_up(const double* values, std::size_t count, double* sum) override {
    queue([=] {
      *sum = 0;
      for (std::size_t i = 0; i < count; ++i) *sum += values[i];
    });
  }
  void carry(ExactSquares* squares, bool has_problem) override {
    queue([=] {
      squares->not_finite += has_problem ? 1 : 0;
      ddl::carry(*squares);
    });
  }
  void add_up(ExactSquares* squares, double* sum) override {
    queue([=] {
      ddl::carry(*squares);
      *sum = value_of(*squares);
    });
  }
  void conclude(const double* weight, const double* squares, bool leave_sums, Outcome* outcome) override {
    queue([=] { *outcome = gradient_pass::outcome_of(*weight, *squares, leave_sums); });
  }
  Outcome fetch(const Outcome* outcome) override {
    ++fetches;
    work_off();
    return *outcome;
  }

  std::vector<std::string> log;
  int fetches = 0;
  std::size_t shared_bytes = 0;

 private:
  void queue(std::function<void()> work) { queued_.push_back(std::move(work)); }
  void each_lane(std::function<void(const Lane&)> pass) {
    queue([pass = std::move(pass)] {
      for (std::uint32_t block = 0; block < blocks; ++block) {
        for (std::uint32_t thread = 0; thread < threads; ++thread) pass({block, blocks, thread, threads});
      }
    });
  }
  void work_off() {
    for (const auto& work : queued_) work();
    queued_.clear();
  }

  Context& context_;
  bool reaches_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  std::vector<std::function<void()>> queued_;
};

StreamReducer::Stream stream_of(std::uintptr_t number) {
  return reinterpret_cast<StreamReducer::Stream>(number);
}

constexpr std::size_t sizes[] = {7, 1, 0, 64, 300, 5, 1000};
constexpr std::size_t gradients = std::size(sizes);

/// One rank's, one after the other or with gaps.
struct Gradients {
  explicit Gradients(bool scattered) {
    for (const std::size_t size : sizes) {
      offsets.push_back(memory.size());
      memory.resize(memory.size() + size + (scattered ? 3 : 0));
    }
  }
  [[nodiscard]] std::vector<StreamGradient> registered() {
    std::vector<StreamGradient> result;
    for (std::size_t g = 0; g < gradients; ++g) {
      result.push_back({fmt::format("g{}", g), memory.data() + offsets[g], sizes[g]});
    }
    return result;
  }
  [[nodiscard]] std::span<float> operator[](std::size_t g) { return {memory.data() + offsets[g], sizes[g]}; }

  std::vector<float> memory;
  std::vector<std::size_t> offsets;
};

/// Rank 1 has nothing.
double weight_of(int rank) { return rank == 1 ? 0 : 3 + rank; }

float mean_of(int rank, std::size_t gradient, std::size_t element, int step = 0) {
  return static_cast<float>(
      std::sin(1 + rank * 31 + static_cast<int>(gradient) * 7 + static_cast<int>(element) + step));
}

void backward(Gradients& values, int rank, GradientKind kind, int step = 0) {
  const double weight = weight_of(rank);
  for (std::size_t g = 0; g < gradients; ++g) {
    for (std::size_t e = 0; e < sizes[g]; ++e) {
      const float mean = mean_of(rank, g, e, step);
      if (kind == GradientKind::sum) {
        values[g][e] = static_cast<float>(mean * weight);
      } else {
        values[g][e] = weight == 0 ? std::numeric_limits<float>::quiet_NaN() : mean;
      }
    }
  }
}

double total_weight(int ranks) {
  double total = 0;
  for (int rank = 0; rank < ranks; ++rank) total += weight_of(rank);
  return total;
}

double expected_mean(int ranks, std::size_t gradient, std::size_t element, int step = 0) {
  double sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += weight_of(rank) * mean_of(rank, gradient, element, step);
  return sum / total_weight(ranks);
}

void expect_means(Gradients& found, int ranks, double factor, int step = 0) {
  for (std::size_t g = 0; g < gradients; ++g) {
    for (std::size_t e = 0; e < sizes[g]; ++e) {
      ASSERT_NEAR(found[g][e] * factor, expected_mean(ranks, g, e, step), 1e-5)
          << "gradient " << g << ", " << e;
    }
  }
}

double expected_norm(int ranks, int step = 0) {
  double squares = 0;
  for (std::size_t g = 0; g < gradients; ++g) {
    for (std::size_t e = 0; e < sizes[g]; ++e) squares += std::pow(expected_mean(ranks, g, e, step), 2);
  }
  return std::sqrt(squares);
}

struct Case {
  int ranks;
  GradientKind kind;
  bool early_weight;
  bool leave_sums;
  bool scattered;
  bool reaches;
  std::size_t bucket_bytes;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int ranks : {1, 2, 3, 4}) {
    for (const bool leave_sums : {false, true}) {
      for (const bool scattered : {false, true}) {
        for (const bool reaches : {false, true}) {
          for (const std::size_t bytes :
               {std::size_t{4}, std::size_t{100}, std::size_t{1000}, std::size_t{0}}) {
            all.push_back({ranks, GradientKind::mean, true, leave_sums, scattered, reaches, bytes});
            all.push_back({ranks, GradientKind::sum, true, leave_sums, scattered, reaches, bytes});
            all.push_back({ranks, GradientKind::sum, false, leave_sums, scattered, reaches, bytes});
          }
        }
      }
    }
  }
  return all;
}

/// A step in which gradients become ready from the last to the first, each rank's on streams of its own.
void run_step(StreamReducer& reducer, double weight, bool early_weight, int streams = 2) {
  if (early_weight) reducer.begin(weight);
  for (std::size_t g = gradients; g-- > 0;) {
    reducer.ready(g, stream_of(1 + g % static_cast<std::size_t>(streams)));
  }
  reducer.finish(early_weight ? std::nullopt : std::optional(weight), stream_of(1));
}

TEST(StreamReducer, GradientsBecomeWeightedMeans) {
  for (const Case& c : cases()) {
    if (total_weight(c.ranks) == 0) continue;
    run_in_process(c.ranks, [&](Context& context) {
      HostQueue queue(context, c.reaches);
      Gradients values(c.scattered);
      StreamReducer reducer(
          context, queue, values.registered(),
          {.gradients = c.kind, .bucket_bytes = c.bucket_bytes, .leave_sums = c.leave_sums});
      for (int step = 0; step < 3; ++step) {
        backward(values, context.rank(), c.kind, step);
        run_step(reducer, weight_of(context.rank()), c.early_weight);
        const ReducedStep result = reducer.result();
        EXPECT_EQ(result.weight, total_weight(c.ranks));
        EXPECT_EQ(result.scale, c.leave_sums ? 1 / result.weight : 1);
        EXPECT_TRUE(result.finite);
        EXPECT_NEAR(result.norm, expected_norm(c.ranks, step), 1e-5);
        expect_means(values, c.ranks, result.scale, step);
      }
      // Nothing is packed where collectives reach runs of memory.
      if (c.reaches && !c.scattered) {
        EXPECT_EQ(queue.shared_bytes, 0U);
      }
      if (!c.reaches) {
        EXPECT_GE(queue.shared_bytes, reducer.bytes());
      }
    });
  }
}

TEST(StreamReducer, AllRanksHaveTheSameBits) {
  constexpr int ranks = 4;
  std::vector<std::vector<float>> found(ranks);
  std::vector<double> norms(ranks);
  run_in_process(ranks, [&](Context& context) {
    HostQueue queue(context, context.rank() % 2 == 0);  // some pack, some do not
    Gradients values(false);
    StreamReducer reducer(context, queue, values.registered(),
                          {.gradients = GradientKind::sum, .bucket_bytes = 400});
    backward(values, context.rank(), GradientKind::sum);
    run_step(reducer, weight_of(context.rank()), true);
    norms[static_cast<std::size_t>(context.rank())] = reducer.result().norm;
    found[static_cast<std::size_t>(context.rank())] = values.memory;
  });
  for (int rank = 1; rank < ranks; ++rank) {
    EXPECT_EQ(found[static_cast<std::size_t>(rank)], found[0]);
    EXPECT_EQ(norms[static_cast<std::size_t>(rank)], norms[0]);
  }
}

/// If it failed, the trainer's stream would go on before the gradients are there, or hosts would wait in each
/// step.
TEST(StreamReducer, StreamsWaitAndHostsDoNot) {
  run_in_process(2, [&](Context& context) {
    HostQueue queue(context, true);
    Gradients values(false);
    // Gradient 6, of 1000 floats, which is cut, and all others.
    StreamReducer reducer(context, queue, values.registered(),
                          {.gradients = GradientKind::sum, .bucket_bytes = 2000});
    run_step(reducer, 1, true, 1);
    EXPECT_EQ(queue.fetches, 1) << "the first step learns the order";
    queue.log.clear();
    run_step(reducer, 1, true, 1);
    EXPECT_EQ(queue.fetches, 1);
    const std::string stream = fmt::format("{}", fmt::ptr(stream_of(1)));
    const std::vector<std::string> expected = {"all_reduce 1 f64", "follow " + stream,   "all_reduce 500 f32",
                                               "unpack",           "all_reduce 500 f32", "unpack",
                                               "follow " + stream, "all_reduce 377 f32", "unpack",
                                               "all_reduce 1 f64", "precede " + stream};
    EXPECT_EQ(queue.log, expected);
    EXPECT_TRUE(reducer.result().finite);
  });
}

/// With a weight that is known at the end only, some ranks may have started more buckets by then than others.
TEST(StreamReducer, CollectivesComeInOneOrder) {
  std::vector<std::vector<std::string>> logs(2);
  run_in_process(2, [&](Context& context) {
    HostQueue queue(context, true);
    Gradients values(false);
    StreamReducer reducer(context, queue, values.registered(),
                          {.gradients = GradientKind::sum, .bucket_bytes = 400});
    run_step(reducer, 1, false);
    for (std::size_t i = 0; i < gradients; ++i) {
      reducer.ready(context.rank() == 0 ? i : gradients - 1 - i, stream_of(1));
    }
    reducer.finish(1, stream_of(1));
    for (const std::string& entry : queue.log) {
      if (entry.starts_with("all_reduce")) logs[static_cast<std::size_t>(context.rank())].push_back(entry);
    }
    EXPECT_TRUE(reducer.result().finite);
  });
  EXPECT_EQ(logs[0], logs[1]);
}

TEST(StreamReducer, AbsentGradientsCountAsZeros) {
  for (const bool reaches : {false, true}) {
    run_in_process(2, [&](Context& context) {
      HostQueue queue(context, reaches);
      Gradients values(false);
      StreamReducer reducer(context, queue, values.registered(),
                            {.gradients = GradientKind::mean, .bucket_bytes = 100});
      for (int step = 0; step < 2; ++step) {
        for (float& value : values.memory) value = 2;
        if (context.rank() == 1) values[4][0] = std::numeric_limits<float>::quiet_NaN();
        reducer.begin(1);
        for (std::size_t g = gradients; g-- > 0;) {
          context.rank() == 1 && g == 4 ? reducer.absent(g) : reducer.ready(g, stream_of(1));
        }
        reducer.finish({}, stream_of(1));
        EXPECT_TRUE(reducer.result().finite);
        for (const float value : values[4]) ASSERT_EQ(value, 1);
        for (const float value : values[3]) ASSERT_EQ(value, 2);
      }
    });
  }
}

TEST(StreamReducer, MicroBatchesAddUp) {
  for (const GradientKind kind : {GradientKind::mean, GradientKind::sum}) {
    run_in_process(2, [&](Context& context) {
      HostQueue queue(context, true);
      Gradients values(false);
      StreamReducer reducer(context, queue, values.registered(),
                            {.gradients = kind, .bucket_bytes = 400, .micro_batches = true});
      for (int step = 0; step < 3; ++step) {
        const bool has_two = step != 1;  // what the first step has accumulated is not to show in the second
        // Items of value 1 in the first micro-batch, 4 in the second; three times as many there.
        const float first = 1;
        const float second = kind == GradientKind::mean ? 4.0f : 3 * 4.0f + (has_two ? first : 0);
        if (has_two) {
          for (float& value : values.memory) value = first;
          reducer.no_sync() = true;
          run_step(reducer, 1, kind == GradientKind::mean);
          reducer.no_sync() = false;
        }
        for (float& value : values.memory) value = second;
        run_step(reducer, 3, kind == GradientKind::mean);
        const ReducedStep result = reducer.result();
        EXPECT_EQ(result.weight, has_two ? 8 : 6);
        const float mean = has_two ? 13.0f / 4 : 4;
        for (const float value : values.memory) ASSERT_EQ(value, mean) << "step " << step;
      }
    });
  }
}

InProcessOptions two_hosts() { return {.context = {}, .hosts = {"a", "a", "b", "b"}}; }

/// One step in 16 bits is as exact as they are; what it owes is made up for by the next ones.
TEST(StreamReducer, SixteenBitWiresOweAndPay) {
  constexpr int ranks = 4;
  constexpr int steps = 16;
  for (const DataType wire : {DataType::bf16, DataType::f16}) {
    const double unit = wire == DataType::bf16 ? 0x1p-8 : 0x1p-11;
    run_in_process(
        ranks,
        [&](Context& context) {
          HostQueue queue(context, true);
          Gradients values(false);
          StreamReducer reducer(context, queue, values.registered(),
                                {.gradients = GradientKind::sum, .bucket_bytes = 400, .wire = wire});
          std::vector<double> sums(values.memory.size());
          double greatest = 0;
          for (int step = 0; step < steps; ++step) {
            backward(values, context.rank(), GradientKind::sum);
            run_step(reducer, weight_of(context.rank()), true);
            const ReducedStep result = reducer.result();
            EXPECT_TRUE(result.finite);
            EXPECT_EQ(result.bytes, reducer.bytes() / 2);
            for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += values.memory[i];
          }
          for (std::size_t g = 0; g < gradients; ++g) {
            for (std::size_t e = 0; e < sizes[g]; ++e) {
              const double mean = expected_mean(ranks, g, e);
              // Each of the ranks' contributions, and each of their partial sums, is rounded.
              ASSERT_NEAR(values[g][e], mean, 2 * ranks * unit) << "gradient " << g << ", " << e;
              greatest = std::max(greatest, std::abs(sums[values.offsets[g] + e] / steps - mean));
            }
          }
          // What contributions lose comes back; what partial sums lose does not.
          EXPECT_LT(greatest, ranks * unit);
        },
        two_hosts());
  }
}

/// If it failed, a small gradient would never travel beside what 16 bits can hold of a large one.
TEST(StreamReducer, WhatSixteenBitsCannotHoldComesLater) {
  run_in_process(
      4,
      [](Context& context) {
        HostQueue queue(context, true);
        Gradients values(false);
        StreamReducer reducer(context, queue, values.registered(),
                              {.gradients = GradientKind::sum, .bucket_bytes = 400, .wire = DataType::bf16});
        constexpr float step_of_bf16 = 1.0f / 128;
        constexpr float gradient = 1 + step_of_bf16 / 8;
        double sum = 0;
        for (int step = 0; step < 8; ++step) {
          for (float& value : values.memory) value = context.rank() == 0 ? gradient : 0;
          run_step(reducer, 1, true);
          EXPECT_TRUE(reducer.result().finite);
          sum += values.memory[0];
          EXPECT_EQ(values.memory.back(), values.memory[0]);
        }
        EXPECT_EQ(sum * 4, 8 * gradient);
        // What is owed can be saved, and taken by another one.
        for (float& value : values.memory) value = context.rank() == 0 ? gradient : 0;
        run_step(reducer, 1, true);
        const std::vector<StreamGradient> owed = reducer.residuals();
        ASSERT_EQ(owed.size(), gradients);
        EXPECT_EQ(owed[0].values[0], context.rank() == 0 ? step_of_bf16 / 8 : 0);
      },
      two_hosts());
}

TEST(StreamReducer, OneHostSendsFloatsWhateverTheWire) {
  run_in_process(2, [](Context& context) {
    HostQueue queue(context, true);
    Gradients values(false);
    StreamReducer reducer(context, queue, values.registered(),
                          {.gradients = GradientKind::sum, .wire = DataType::bf16});
    backward(values, context.rank(), GradientKind::sum);
    run_step(reducer, weight_of(context.rank()), true);
    EXPECT_EQ(reducer.result().bytes, reducer.bytes());
    EXPECT_TRUE(reducer.residuals().empty());
    expect_means(values, 2, 1);
  });
}

TEST(StreamReducer, WhatIsNotFiniteIsSeenByAll) {
  run_in_process(3, [&](Context& context) {
    HostQueue queue(context, true);
    Gradients values(false);
    StreamReducer reducer(context, queue, values.registered(), {.gradients = GradientKind::sum});
    if (context.rank() == 2) values[6][999] = std::numeric_limits<float>::infinity();
    run_step(reducer, 1, true);
    EXPECT_FALSE(reducer.result().finite);
  });
}

TEST(StreamReducer, AStateHasTheSameBuckets) {
  run_in_process(2, [&](Context& context) {
    HostQueue queue(context, true);
    Gradients values(false);
    const StreamReducerOptions options = {.gradients = GradientKind::sum, .bucket_bytes = 400};
    StreamReducer first(context, queue, values.registered(), options);
    first.begin(1);
    for (const std::size_t g : {3U, 0U, 6U, 1U, 5U, 2U, 4U}) first.ready(g, stream_of(1));
    first.finish({}, stream_of(1));
    StreamReducer second(context, queue, values.registered(), options);
    second.restore(first.state());
    EXPECT_EQ(second.state(), first.state());
    EXPECT_EQ(second.buckets(), first.buckets());
    queue.log.clear();
    run_step(second, 1, true);
    EXPECT_TRUE(second.result().finite);
    EXPECT_EQ(second.state(), first.state()) << "what is known is not learned again";

    Gradients others(false);
    auto renamed = others.registered();
    renamed[0].name = "other";
    StreamReducer other(context, queue, renamed, options);
    const std::string state = first.state();
    EXPECT_EQ(error_of([&] { other.restore(state); }).code(), ErrorCode::mismatch);
  });
}

TEST(StreamReducer, OneRanksMistakeEndsTheStepOnAll) {
  run_in_process(2, [&](Context& context) {
    HostQueue queue(context, true);
    Gradients values(false);
    StreamReducer reducer(context, queue, values.registered(), {.gradients = GradientKind::sum});
    const bool errs = context.rank() == 1;
    // A gradient that was not reported, the weight being known to the others already.
    reducer.begin(1);
    for (std::size_t g = gradients; g-- > 0;) {
      if (!errs || g != 3) reducer.ready(g, stream_of(1));
    }
    const auto finish = [&] { reducer.finish({}, stream_of(1)); };
    if (errs) {
      const std::string message = message_of(ErrorCode::invalid_argument, finish);
      EXPECT_NE(message.find("gradient 3 ('g3') was not made ready"), std::string::npos) << message;
    } else {
      finish();
    }
    EXPECT_FALSE(reducer.result().finite);
    // A weight that is none.
    for (std::size_t g = gradients; g-- > 0;) reducer.ready(g, stream_of(1));
    if (errs) {
      const std::string message =
          message_of(ErrorCode::invalid_argument, [&] { reducer.finish(-1, stream_of(1)); });
      EXPECT_NE(message.find("the weight is -1"), std::string::npos) << message;
    } else {
      reducer.finish(1, stream_of(1));
    }
    EXPECT_EQ(error_of([&] { reducer.result(); }).code(), ErrorCode::invalid_argument);
    // The next step is a good one.
    for (float& value : values.memory) value = 1;
    run_step(reducer, 2, false);
    EXPECT_EQ(reducer.result().weight, 4);
    EXPECT_EQ(values[4][17], 0.5f);
    run_step(reducer, 0, true);
    const std::string message = message_of(ErrorCode::invalid_argument, [&] { reducer.result(); });
    EXPECT_NE(message.find("total weight of all 2 ranks is 0"), std::string::npos) << message;
  });
}

TEST(StreamReducer, WrongCallsAreRefused) {
  run_in_process(1, [](Context& context) {
    HostQueue queue(context, true);
    Gradients values(false);
    const auto registered = values.registered();
    StreamReducer means(context, queue, registered, {.gradients = GradientKind::mean});
    const auto refused = [](const auto& call) {
      return error_of(call).code() == ErrorCode::invalid_argument;
    };
    EXPECT_TRUE(refused([&] { means.ready(0, stream_of(1)); })) << "no weight";
    EXPECT_TRUE(refused([&] { means.finish(1, stream_of(1)); })) << "the weight of means comes first";
    EXPECT_TRUE(refused([&] { means.result(); })) << "no step";
    means.begin(1);
    EXPECT_TRUE(refused([&] { means.begin(1); }));
    EXPECT_TRUE(refused([&] { means.ready(gradients, stream_of(1)); })) << "no such gradient";
    means.ready(0, stream_of(1));
    EXPECT_TRUE(refused([&] { means.ready(0, stream_of(1)); })) << "twice";
    means.no_sync() = true;
    EXPECT_TRUE(refused([&] {
      for (std::size_t g = 1; g < gradients; ++g) means.ready(g, stream_of(1));
      means.finish({}, stream_of(1));
    })) << "no memory for micro-batches";

    auto overlapping = registered;
    overlapping[1].values = overlapping[0].values;
    EXPECT_TRUE(
        refused([&] { StreamReducer(context, queue, overlapping, {.gradients = GradientKind::sum}); }));
    auto nowhere = registered;
    nowhere[0].values = nullptr;
    EXPECT_TRUE(refused([&] { StreamReducer(context, queue, nowhere, {.gradients = GradientKind::sum}); }));
  });
  run_in_process(2, [](Context& context) {
    HostQueue queue(context, true);
    Gradients values(false);
    auto registered = values.registered();
    if (context.rank() == 1) registered[4].count = 299;
    EXPECT_EQ(
        error_of([&] { StreamReducer(context, queue, registered, {.gradients = GradientKind::sum}); }).code(),
        ErrorCode::mismatch);
  });
}

/// Lost otherwise: reproducible training, where buckets are cut in another way.
TEST(StreamReducer, ReproducibleWhateverTheBuckets) {
  std::vector<std::pair<std::vector<float>, double>> results(6);
  for (std::size_t run = 0; run < results.size(); ++run) {
    InProcessOptions options;
    options.context.reproducible = true;
    run_in_process(
        3,
        [&](Context& context) {
          const std::size_t bucket_bytes[] = {64, 500, 100'000};
          HostQueue queue(context, true);
          Gradients values(run % 2 == 1);
          StreamReducer reducer(context, queue, values.registered(),
                                {.gradients = GradientKind::sum, .bucket_bytes = bucket_bytes[run / 2]});
          for (int step = 0; step < 2; ++step) {
            backward(values, context.rank(), GradientKind::sum, step);
            for (std::size_t g = gradients; g-- > 0;) reducer.ready(g, stream_of(1));
            reducer.finish(weight_of(context.rank()), stream_of(1));
          }
          const double norm = reducer.result().norm;
          EXPECT_NEAR(norm, expected_norm(3, 1), 1e-6 * norm);
          if (context.rank() != 0) return;
          results[run].second = norm;
          for (std::size_t g = 0; g < gradients; ++g) {
            results[run].first.insert(results[run].first.end(), values[g].begin(), values[g].end());
          }
        },
        options);
    EXPECT_EQ(results[run], results[0]) << "run " << run;
  }
}

TEST(StreamReducer, AProblemReachesOtherRanksInReproducibleContexts) {
  InProcessOptions options;
  options.context.reproducible = true;
  run_in_process(
      2,
      [&](Context& context) {
        HostQueue queue(context, true);
        Gradients values(false);
        StreamReducer reducer(context, queue, values.registered(), {.gradients = GradientKind::sum});
        for (int step = 0; step < 2; ++step) {
          backward(values, 0, GradientKind::sum);
          const bool is_forgetful = step == 0 && context.rank() == 1;
          reducer.begin(2);
          for (std::size_t g = is_forgetful ? 1 : 0; g < gradients; ++g) reducer.ready(g, stream_of(1));
          if (is_forgetful) {
            EXPECT_EQ(error_of([&] { reducer.finish({}, stream_of(1)); }).code(),
                      ErrorCode::invalid_argument);
          } else {
            reducer.finish({}, stream_of(1));
          }
          EXPECT_EQ(reducer.result().finite, step == 1) << "rank " << context.rank();
        }
      },
      options);
}

}  // namespace
}  // namespace ddl
