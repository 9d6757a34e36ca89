#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ddl/context.hpp"

namespace ddl {

/// A setting of a job, as users give it.
struct Option {
  std::string_view name;      ///< In a file of options.
  std::string_view variable;  ///< Empty: there is none.
  std::string_view word;      ///< In DDL_OPTIONS; empty: it is not there.
  std::string_view expected;  ///< What its values are.
  std::string_view help;
  /// False if the text is no such value. May throw an Error that says more.
  bool (*set)(ContextOptions& options, std::string_view text);
  std::string (*get)(const ContextOptions& options);
};

/// All of them, in the order in which people look for them.
std::span<const Option> all_options() noexcept;

/// A word of IBM's spelling, "-mode", and its value.
using IbmOption = std::pair<std::string, std::string>;

/// Reads IBM's spelling: "-mode p:4x4 -dbg_level 2 -dump_iter 100". Throws `invalid_argument` naming `origin`
/// ("DDL_OPTIONS"), the text, what was found and what was expected: an unknown word, one twice, one without a
/// value. Values are not looked at.
std::vector<IbmOption> parse_ibm_options(std::string_view text, std::string_view origin);

/// "p:4x8": sets the mode, and the grid of workers if there is one; whether that fits the job is known only
/// when the ranks are. Throws `invalid_argument`.
bool set_mode(ContextOptions& options, std::string_view text);

}  // namespace ddl
