// The parts of the programs named after a collective: what they would measure, and whether they see what is
// wrong.

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>

#include "ddl/error.hpp"
#include "ddl/float16.hpp"
#include "perf/call.hpp"
#include "perf/element.hpp"
#include "perf/machine.hpp"
#include "perf/settings.hpp"
#include "perf/stopwatch.hpp"
#include "perf/test_values.hpp"
#include "thrown_error.hpp"

namespace perf {
namespace {

using ddl::DataType;
using ddl::ReduceOp;
using ddl::topology::Collective;

std::string refusal(Collective collective, const std::vector<std::string>& arguments) {
  return ddl::test::message_of(ddl::ErrorCode::invalid_argument, [&] { parse(collective, arguments); });
}

TEST(Settings, TakesTheFlagsOfNcclTests) {
  const Settings settings =
      parse(Collective::all_reduce, {"-b", "1K", "-e", "4m", "-f", "4", "-n", "7", "-w", "0", "-c", "0", "-o",
                                     "max", "-d", "bfloat16", "--agg_iters=3"});
  EXPECT_EQ(sizes(settings), (std::vector<std::size_t>{1U << 10U, 1U << 12U, 1U << 14U, 1U << 16U, 1U << 18U,
                                                       1U << 20U, 1U << 22U}));
  EXPECT_EQ(settings.iterations, 7);
  EXPECT_EQ(settings.warm_up, 0);
  EXPECT_FALSE(settings.check);
  EXPECT_EQ(settings.ops, std::vector{ReduceOp::max});
  EXPECT_EQ(settings.types, std::vector{DataType::bf16});
  EXPECT_EQ(calls_of(settings, 8), 3);
  const Settings long_forms =
      parse(Collective::broadcast,
            {"--minbytes", "10", "--maxbytes=30", "--stepbytes", "10", "--root", "all", "--datatype", "all"});
  EXPECT_EQ(sizes(long_forms), (std::vector<std::size_t>{10, 20, 30}));
  EXPECT_EQ(long_forms.root, Settings::all_roots);
  EXPECT_EQ(long_forms.types.size(), 7U);
  EXPECT_EQ(sizes(parse(Collective::all_reduce, {"-b", "0", "-e", "0"})), std::vector<std::size_t>{0});
}

TEST(Settings, SaysWhatIsWrongWithAFlag) {
  const std::map<std::vector<std::string>, std::string> refused = {
      {{"-b", "8x"}, "'8x'"},
      {{"-b", "-1"}, "'-1'"},
      {{"-b", "99999999999999999999"}, "expected a number from 0"},
      {{"-e", "17179869184G"}, "K, M and G"},
      {{"-b", "2M", "-e", "1M"}, "at least 2097152"},
      {{"-f", "1"}, "from 2"},
      {{"-f", "2", "-i", "8"}, "either a factor (-f) or an increment (-i)"},
      {{"-b", "0", "-e", "8"}, "an increment (-i)"},
      {{"-n", "0"}, "from 1"},
      {{"-c", "2"}, "0 or 1"},
      {{"-o", "mean"}, "sum, prod, max, min, avg or all"},
      {{"-d", "f8"}, "bfloat16"},
      {{"-n"}, "a value after it"},
      {{"-n", "1", "--iters", "2"}, "given twice"},
      {{"--predict=1"}, "no value"},
      {{"--iter", "2"}, "--iters"},
      {{"-r", "0"}, "a known one"},  // all_reduce has no root
      {{""}, "a known one"},
      {{"--place", "left"}, "in, out or both"},
      {{"--json", ""}, "the name of a file"},
      {{"--baseline", "nccl"}, "mpi, gloo, loop, threads or none"},
      {{"--baseline", "mpi", "--in-process", "2"}, "use mpirun"},
      {{"--baseline", "threads"}, "--in-process with it"},
      {{"--in-process", "0"}, "from 1 to 1024"},
  };
  for (const auto& [arguments, words] : refused) {
    const std::string message = refusal(Collective::all_reduce, arguments);
    EXPECT_NE(message.find(words), std::string::npos) << "'" << words << "' in: " << message;
  }
  EXPECT_NE(refusal(Collective::broadcast, {"-o", "sum"}), "");
  EXPECT_NE(refusal(Collective::broadcast, {"--baseline", "loop"}), "");
}

TEST(Shape, SizesAreThoseOfNcclTests) {
  const Shape pieces = shape_of(Collective::reduce_scatter, 1000, DataType::f32, 4);
  EXPECT_EQ(pieces.count, 62U);  // of 250 elements
  EXPECT_EQ(pieces.input, 248U);
  EXPECT_EQ(pieces.output, 62U);
  EXPECT_EQ(pieces.whole, 248U);
  EXPECT_EQ(shape_of(Collective::all_gather, 1000, DataType::f32, 4).output, 248U);
  EXPECT_EQ(shape_of(Collective::all_reduce, 1000, DataType::f64, 4).count, 125U);
  EXPECT_EQ(shape_of(Collective::all_gather, 8, DataType::f32, 4).count, 0U);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::broadcast, 4), 1);
}

TEST(Placement, IsNamed) {
  using ddl::topology::RankMap;
  EXPECT_EQ(placement_of(RankMap({"a", "a", "b", "b"})), "host");
  EXPECT_EQ(placement_of(RankMap({"a", "b", "a", "b"})), "round_robin");
  EXPECT_EQ(placement_of(RankMap({"a", "b", "c", "a", "b", "a"})), "round_robin");
  EXPECT_EQ(placement_of(RankMap({"a", "b", "b", "a"})), "mixed");
  EXPECT_EQ(ranks_per_host(RankMap({"a", "b", "b"})), (std::vector<int>{1, 2}));
}

TEST(Stopwatch, Median) {
  std::vector<double> values = {5, 1, 3};
  EXPECT_EQ(median_of(values), 3);
  values = {4, 1, 3, 2};
  EXPECT_EQ(median_of(values), 2.5);
}

/// All ranks' memory for one call, with the result worked out in the plainest way.
class Job {
 public:
  Job(Collective collective, DataType type, ReduceOp op, int ranks, std::size_t count, bool in_place)
      : type_(type), count_(count) {
    const auto n = static_cast<std::size_t>(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      values_.emplace_back(collective, type, op, 1, rank, ranks);
      inputs_.emplace_back(count * n * size_of(type));
      outputs_.emplace_back(count * n * size_of(type));
    }
    for (int rank = 0; rank < ranks; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      Call call{collective, inputs_[r].data(), outputs_[r].data(), count, type, op, 1, in_place};
      if (in_place) {
        std::byte* piece = inputs_[r].data() + r * count * size_of(type);
        if (collective == Collective::reduce_scatter) {
          call.output = piece;
        } else if (collective == Collective::all_gather) {
          call.output = inputs_[r].data();
          call.input = piece;
        } else {
          call.output = inputs_[r].data();
        }
      }
      calls_.push_back(call);
      values_[r].fill(call, const_cast<std::byte*>(call.input));
    }
  }

  void run() {
    with_element(type_, [&](auto* type) { run_as<std::remove_pointer_t<decltype(type)>>(); });
  }
  [[nodiscard]] std::int64_t wrong() const {
    std::int64_t sum = 0;
    for (std::size_t rank = 0; rank < calls_.size(); ++rank) sum += values_[rank].count_wrong(calls_[rank]);
    return sum;
  }
  template <typename T>
  [[nodiscard]] T* output(std::size_t rank) const {
    return reinterpret_cast<T*>(calls_[rank].output);
  }

 private:
  template <typename T>
  [[nodiscard]] double reduced(const std::vector<std::vector<T>>& inputs, std::size_t i) const {
    double result = number_of(inputs[0][i]);
    const ReduceOp op = calls_[0].op;
    for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
      const double value = number_of(inputs[rank][i]);
      if (op == ReduceOp::sum || op == ReduceOp::avg) result += value;
      if (op == ReduceOp::prod) result *= value;
      if (op == ReduceOp::min) result = std::min(result, value);
      if (op == ReduceOp::max) result = std::max(result, value);
    }
    return op == ReduceOp::avg ? result / static_cast<double>(inputs.size()) : result;
  }

  template <typename T>
  static T from_number(double value) {
    if constexpr (is_float16<T>) {
      return T(static_cast<float>(value));
    } else {
      return static_cast<T>(value);
    }
  }

  template <typename T>
  void run_as() {
    const std::size_t n = calls_.size();
    const Collective collective = calls_[0].collective;
    const std::size_t length = collective == Collective::reduce_scatter ? count_ * n : count_;
    std::vector<std::vector<T>> inputs;
    for (const Call& call : calls_) {
      const T* input = reinterpret_cast<const T*>(call.input);
      inputs.emplace_back(input, input + length);
    }
    for (std::size_t rank = 0; rank < n; ++rank) {
      for (std::size_t i = 0; i < count_; ++i) {
        switch (collective) {
          case Collective::all_reduce:
            output<T>(rank)[i] = from_number<T>(reduced(inputs, i));
            break;
          case Collective::reduce_scatter:
            output<T>(rank)[i] = from_number<T>(reduced(inputs, rank * count_ + i));
            break;
          case Collective::reduce:
            if (rank == 1) output<T>(rank)[i] = from_number<T>(reduced(inputs, i));
            break;
          case Collective::broadcast:
            output<T>(rank)[i] = inputs[1][i];
            break;
          case Collective::all_gather:
            for (std::size_t from = 0; from < n; ++from) output<T>(rank)[from * count_ + i] = inputs[from][i];
            break;
          case Collective::barrier:
            break;
        }
      }
    }
  }

  DataType type_;
  std::size_t count_;
  std::vector<TestValues> values_;
  std::vector<std::vector<std::byte>> inputs_;
  std::vector<std::vector<std::byte>> outputs_;
  std::vector<Call> calls_;
};

constexpr std::array collectives = {Collective::all_reduce, Collective::reduce_scatter,
                                    Collective::all_gather, Collective::broadcast, Collective::reduce};

// A benchmark that cries wrong for a right result is of no use; nor is one that takes what was there before.
TEST(TestValues, TakesTheRightResultAndNothingElse) {
  for (const Collective collective : collectives) {
    for (const DataType type : {DataType::u8, DataType::i32, DataType::i64, DataType::f16, DataType::bf16,
                                DataType::f32, DataType::f64}) {
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max, ReduceOp::avg}) {
        for (const bool in_place : {false, true}) {
          SCOPED_TRACE(std::string(to_string(collective)) + " " + std::string(to_string(type)) + " " +
                       std::string(to_string(op)) + (in_place ? " in place" : ""));
          Job job(collective, type, op, 3, 1100, in_place);
          if (!in_place) {
            EXPECT_GT(job.wrong(), 1000);
          }
          job.run();
          EXPECT_EQ(job.wrong(), 0);
        }
      }
    }
  }
}

TEST(TestValues, SumsOfManyRanksAreExactInEveryType) {
  for (const DataType type : {DataType::u8, DataType::f16, DataType::bf16}) {
    Job job(Collective::all_reduce, type, ReduceOp::sum, 300, 16, false);
    job.run();
    EXPECT_EQ(job.wrong(), 0) << to_string(type);
  }
}

TEST(TestValues, CountsNaNAndSingleWrongElements) {
  Job job(Collective::all_reduce, DataType::f32, ReduceOp::avg, 2, 2000, true);
  job.run();
  job.output<float>(0)[7] = std::numeric_limits<float>::quiet_NaN();
  job.output<float>(1)[1999] += 1;
  EXPECT_EQ(job.wrong(), 2);
  Job half(Collective::all_gather, DataType::f16, ReduceOp::sum, 2, 5, false);
  half.run();
  half.output<ddl::float16>(1)[9] = ddl::float16::from_bits(0x7e00);
  EXPECT_EQ(half.wrong(), 1);
}

TEST(TestValues, SeesAResultThatIsMisplaced) {
  Job job(Collective::broadcast, DataType::i32, ReduceOp::sum, 2, 4096, false);
  job.run();
  std::copy(job.output<int>(1), job.output<int>(1) + 1024, job.output<int>(1) + 2048);
  EXPECT_GT(job.wrong(), 1000);
}

}  // namespace
}  // namespace perf
