#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ddl/context.hpp"

namespace ddl {

/// An option of a job: its names, its help, and how it is read and written.
struct Option {
  struct Value {
    /// False if `text` is not a valid value. May throw an Error that says more.
    bool (*set)(ContextOptions& options, std::string_view text);
    std::string (*get)(const ContextOptions& options);
  };
  std::string_view name;      ///< In a file of options.
  std::string_view variable;  ///< Environment variable; empty: none.
  std::string_view word;      ///< In DDL_OPTIONS; empty: none.
  std::string_view expected;  ///< Describes valid values.
  std::string_view help;
  Value value;
};

/// All options, the ones that people look for most first.
std::span<const Option> all_options() noexcept;

}  // namespace ddl
