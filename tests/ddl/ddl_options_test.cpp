// The sources of a job's options. Without these tests' properties a job would ignore settings, or not say
// which one is wrong and where it comes from.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "ddl/error.hpp"
#include "ddl/options.hpp"
#include "support/environment_variable.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown_error.hpp"

namespace ddl {
namespace {

using test::error_of;
using topology::Mode;

using Variable = test::EnvironmentVariable;

ContextOptions given(const std::string& ibm) {
  const Variable variable("DDL_OPTIONS", ibm);
  return ContextOptions::from_environment();
}

TEST(Options, ReadIbmsSpelling) {
  const ContextOptions options = given("-mode p:4x16x4 -dbg_level 2");
  EXPECT_EQ(options.mode, Mode::explore);
  EXPECT_EQ(options.decomposition, "4x16x4");
  EXPECT_EQ(options.debug_level, 2);
  EXPECT_EQ(given("  -dbg_level\t0\n-mode  b:4,3x2 ").decomposition, "4,3x2");
  const std::vector<std::pair<const char*, Mode>> letters{
      {"p", Mode::explore}, {"r", Mode::rings},          {"n", Mode::nccl}, {"b", Mode::nccl_per_dimension},
      {"m", Mode::mpi},     {"c", Mode::scatter_gather},
  };
  for (const auto& [letter, mode] : letters) {
    const ContextOptions one = given(std::string("-mode ") + letter);
    EXPECT_EQ(one.mode, mode);
    EXPECT_TRUE(one.decomposition.empty());
    EXPECT_EQ(one.debug_level, 0);
  }
  EXPECT_EQ(given("-dump_iter 100 -mode r").dump_iterations, 100);
  EXPECT_EQ(given("-dev_sync 2 -rebind_iter 7").device_sync, 2);
  EXPECT_EQ(given("").mode, Mode::explore);
}

TEST(Options, OfIbmsSpellingSayWhatIsWrong) {
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
      {"-dev_sync 3", "-dev_sync: found '3', expected 0, 1 or 2"},
      {"-rebind_iter x", "-rebind_iter: found 'x'"},
      {"-mode p 5", "found '5', expected an option"},
  };
  for (const auto& [text, message] : bad) {
    const Error error = error_of([&, words = text] { given(words); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << text;
    const std::string what = error.what();
    EXPECT_NE(what.find(std::string("DDL_OPTIONS='") + text + "'"), std::string::npos) << what;
    EXPECT_NE(what.find(message), std::string::npos) << what << "\nexpected: " << message;
  }
}

OptionSetting setting(const std::string& name, const std::string& flags = "") {
  const auto all = option_settings(flags, "the flags");
  const auto found = std::ranges::find(all, name, &OptionSetting::name);
  if (found == all.end()) throw Error(ErrorCode::internal, name + " is not listed");
  return *found;
}

/// Users could not tell which source of a setting takes effect.
TEST(Options, TheNextSourceHasTheLastWordAndIsNamed) {
  EXPECT_EQ(setting("debug_level").origin, "default");
  EXPECT_EQ(setting("deadline").value, "600");
  EXPECT_EQ(setting("deadline").default_value, "600");
  const Variable deadline("DDL_DEADLINE", "12.5");
  EXPECT_EQ(setting("deadline").value, "12.5");
  EXPECT_EQ(setting("deadline").default_value, "600");
  const Variable level("DDL_DEBUG_LEVEL", "0");
  EXPECT_EQ(setting("debug_level").value, "0");
  EXPECT_EQ(setting("debug_level").origin, "DDL_DEBUG_LEVEL");
  const Variable words("DDL_OPTIONS", "-dbg_level 2 -mode r:2x2");
  EXPECT_EQ(setting("debug_level").value, "2");
  EXPECT_EQ(setting("debug_level").origin, "DDL_OPTIONS");
  EXPECT_EQ(setting("mode").value, "r:2x2");
  EXPECT_EQ(setting("mode", "-mode n").value, "n") << "with the mode, the grid of a source before is gone";
  EXPECT_EQ(setting("debug_level", "-dbg_level 1").value, "1");
  EXPECT_EQ(setting("debug_level", "-dbg_level 1").origin, "the flags");
}

/// A misspelt variable would be silently ignored.
TEST(Options, VariablesThatAreNotKnownAreErrors) {
  const Variable misspelt("DDL_DEADLIN", "5");
  const Error error = error_of([] { ContextOptions::from_environment(); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  const std::string what = error.what();
  EXPECT_NE(what.find("DDL_DEADLIN,"), std::string::npos) << what;
  EXPECT_NE(what.find("the nearest is DDL_DEADLINE"), std::string::npos) << what;
  const Variable others("DDL_OTHERS", "DDL_SCHEMA,DDL_DEADLIN");
  EXPECT_EQ(ContextOptions::from_environment().deadline, std::chrono::seconds(600))
      << "it is another program's";
}

TEST(Options, AllAreListedAndTakeTheirOwnValues) {
  for (const OptionSetting& one : option_settings()) {
    EXPECT_FALSE(one.help.empty()) << one.name;
    EXPECT_FALSE(one.expected.empty()) << one.name;
    EXPECT_EQ(one.value, one.default_value) << one.name;
    if (one.value.empty() || one.variable.empty()) continue;
    const Variable same(one.variable.c_str(), one.value);
    EXPECT_EQ(setting(one.name).value, one.value);
    EXPECT_EQ(setting(one.name).origin, one.variable);
  }
}

}  // namespace
}  // namespace ddl
