// DDL_OPTIONS, as users paste it from IBM's documents. If this failed, a job would run in another mode than
// it was told to, or not say what is wrong with the line.

#include "ddl/ddl_options.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ddl/error.hpp"

namespace ddl {
namespace {

using topology::Mode;

TEST(DdlOptions, ReadsIbmsSpelling) {
  const DdlOptions options = parse_ddl_options("-mode p:4x16x4 -dbg_level 2");
  EXPECT_EQ(options.mode, Mode::explore);
  EXPECT_EQ(options.decomposition, "4x16x4");
  EXPECT_EQ(options.debug_level, 2);
  EXPECT_EQ(parse_ddl_options("  -dbg_level\t0\n-mode  b:4,3x2 ").decomposition, "4,3x2");
  const std::vector<std::pair<const char*, Mode>> letters{
      {"p", Mode::explore}, {"r", Mode::rings},          {"n", Mode::nccl}, {"b", Mode::nccl_per_dimension},
      {"m", Mode::mpi},     {"c", Mode::scatter_gather},
  };
  for (const auto& [letter, mode] : letters) {
    const DdlOptions one = parse_ddl_options(std::string("-mode ") + letter);
    EXPECT_EQ(one.mode, mode);
    EXPECT_TRUE(one.decomposition.empty());
    EXPECT_FALSE(one.debug_level.has_value());
  }
  EXPECT_EQ(parse_ddl_options("-dump_iter 100 -mode r").dump_iterations, 100);
  EXPECT_FALSE(parse_ddl_options("-mode r").dump_iterations.has_value());
  EXPECT_FALSE(parse_ddl_options("").mode.has_value());
  EXPECT_FALSE(parse_ddl_options("  ").debug_level.has_value());
}

TEST(DdlOptions, SaysWhatIsWrong) {
  struct Bad {
    const char* text;
    const char* message;
  };
  const std::vector<Bad> bad{
      {"-mode", "-mode needs a value"},
      {"-mode q", "'q'"},
      {"-mode pp:2x2", "'pp'"},
      {"-mode :2x2", "-mode :2x2"},
      {"-mode p:", "found '' after the colon"},
      {"-mode p:4*4", "found '4*4' after the colon"},
      {"-mode p:-4", "found '-4'"},
      {"-mode p -mode r", "-mode is given twice"},
      {"-mod p", "found '-mod', expected an option; the nearest is -mode"},
      {"mode p", "the nearest is -mode"},
      {"-mode=p", "the nearest is -mode"},
      {"-debug_level 2", "the nearest is -dbg_level"},
      {"-dbg_level 3", "found '3', expected 0, 1 or 2"},
      {"-dbg_level x", "found 'x', expected 0, 1 or 2"},
      {"-dbg_level 02", "found '02'"},
      {"-dbg_level 1 -dbg_level 1", "-dbg_level is given twice"},
      {"-dump_iter", "-dump_iter needs a value"},
      {"-dump_iter -5", "-dump_iter: found '-5'"},
      {"-dump_iter 5x", "-dump_iter: found '5x'"},
      {"-dump_iter 99999999999", "-dump_iter: found '99999999999'"},
      {"-dump_iter 5 -dump_iter 5", "-dump_iter is given twice"},
      {"-dev_sync 1", "-dev_sync is not available in this version"},
      {"-rebind_iter 1", "-rebind_iter is not available in this version"},
      {"-mode p 5", "found '5', expected an option"},
  };
  for (const auto& [text, message] : bad) {
    try {
      parse_ddl_options(text);
      ADD_FAILURE() << "no error: " << text;
    } catch (const Error& error) {
      const std::string what = error.what();
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(what.find(std::string("DDL_OPTIONS='") + text + "'"), std::string::npos) << what;
      EXPECT_NE(what.find(message), std::string::npos) << what << "\nexpected: " << message;
    }
  }
}

}  // namespace
}  // namespace ddl
