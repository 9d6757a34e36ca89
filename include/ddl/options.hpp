#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ddl/context.hpp"

/// Where a job's settings come from. Each comes before the next, which has the last word:
/// - what ContextOptions says;
/// - the file that DDL_OPTIONS_FILE names, a line "name = value" for each, "#" before a comment;
/// - variables, as DDL_DEADLINE;
/// - DDL_OPTIONS, in IBM's spelling: "-mode p:4x8 -dbg_level 1";
/// - flags, in the same spelling, of a program that has such.
namespace ddl {

/// One of them.
struct OptionSetting {
  std::string name;
  std::string variable;  ///< Empty: there is none.
  std::string word;      ///< In DDL_OPTIONS; empty: it is not there.
  std::string value;
  std::string default_value;
  std::string
      origin;  ///< "default", "ddl.conf:3", "DDL_DEADLINE", "DDL_OPTIONS", or what the flags are called.
  std::string expected;
  std::string help;
};

/// What ContextOptions::from_environment finds, and where. Throws as that.
std::vector<OptionSetting> option_settings(std::string_view flags = {},
                                           std::string_view flags_origin = "flags");

}  // namespace ddl
