// Parts of the programs named after collectives: their settings, and whether they notice wrong results.

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>

#include "ddl/error.hpp"
#include "perf/call.hpp"
#include "perf/settings.hpp"
#include "perf/test_values.hpp"
#include "support/thrown_error.hpp"

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
      {{"-c", "2"}, "0, 1"},
      {{"-o", "mean"}, "sum, prod, max, min, avg, all"},
      {{"-d", "f8"}, "bfloat16"},
      {{"-n"}, "--iters needs a value"},
      {{"-n", "1", "--iters", "2"}, "given twice"},
      {{"--predict=1"}, "no value"},
      {{"--iter", "2"}, "--iters"},
      {{"-r", "0"}, "unknown option '-r'"},  // all_reduce has no root
      {{""}, "options alone"},
      {{"--place", "left"}, "in, out, both"},
      {{"--json", ""}, "not empty"},
      {{"--baseline", "nccl"}, "mpi, gloo, loop, threads, none"},
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

TEST(TestValues, CountsNaNAndSingleWrongElements) {
  TestValues values(Collective::all_reduce, DataType::f32, ReduceOp::avg, 0, 0, 1);
  std::vector<float> buffer(2000);
  auto* const memory = reinterpret_cast<std::byte*>(buffer.data());
  const Call call{Collective::all_reduce, memory,        memory, buffer.size(),
                  DataType::f32,          ReduceOp::avg, 0,      true};
  values.fill(call, memory);
  EXPECT_EQ(values.count_wrong(call), 0);
  buffer[7] = std::numeric_limits<float>::quiet_NaN();
  buffer[1999] += 1;
  EXPECT_EQ(values.count_wrong(call), 2);
}

}  // namespace
}  // namespace perf
