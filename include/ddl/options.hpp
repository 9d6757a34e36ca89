#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ddl/context.hpp"

/// @file
/// The settings of a job and their sources. In order of precedence, a later source overrides an earlier one:
///
/// - the defaults of ContextOptions;
/// - environment variables such as DDL_DEADLINE;
/// - DDL_OPTIONS, in IBM's spelling: "-mode p:4x8 -dbg_level 1";
/// - a program's own flags in the same spelling, if it passes them on.
namespace ddl {

/// One setting, its value and the source of the value.
struct OptionSetting {
  std::string name;           ///< For example "deadline".
  std::string variable;       ///< Environment variable, e.g. "DDL_DEADLINE"; empty: none.
  std::string word;           ///< Flag in DDL_OPTIONS, e.g. "-mode"; empty: none.
  std::string value;          ///< As text that the sources accept; empty where nothing is set.
  std::string default_value;  ///< The same without any source.
  /// "default", "DDL_DEADLINE", "DDL_OPTIONS", or `flags_origin`.
  std::string origin;
  std::string expected;  ///< Which values are accepted, for people.
  std::string help;      ///< What the setting does, for people.
};

/// All settings, in the order in which the documentation lists them, as `ContextOptions::from_environment`
/// would read them now. `flags`: a program's flags, spelt as in DDL_OPTIONS; `flags_origin`: what messages
/// call them. Throws as `ContextOptions::from_environment` does.
std::vector<OptionSetting> option_settings(std::string_view flags = {},
                                           std::string_view flags_origin = "flags");

}  // namespace ddl
