#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ddl/context.hpp"

namespace ddl {

/// A setting of a job, as users give it.
struct Option {
  /// How it is read and written.
  struct Value {
    /// False if the text is no such value. May throw an Error that says more.
    bool (*set)(ContextOptions& options, std::string_view text);
    std::string (*get)(const ContextOptions& options);
  };
  std::string_view name;      ///< In a file of options.
  std::string_view variable;  ///< Empty: there is none.
  std::string_view word;      ///< In DDL_OPTIONS; empty: it is not there.
  std::string_view expected;  ///< What its values are.
  std::string_view help;
  Value value;
};

/// All of them, in the order in which people look for them.
std::span<const Option> all_options() noexcept;

}  // namespace ddl
