#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "nmt_example/options/options.hpp"

namespace nmt {

/// What a flag is for: its section in --help and --describe. Those of `command` belong to single subcommands
/// of ddl_nmt, and are not options of a run.
enum class FlagGroup { general, data, model, training, distribution, saving, translating, command };

/// The group's title, e.g. "Model".
std::string_view title(FlagGroup group);

/// The values that a number may have; the ends are allowed unless said otherwise. NaN is never allowed.
struct Range {
  std::optional<double> least;
  std::optional<double> most;
  bool without_least = false;
  bool without_most = false;

  [[nodiscard]] bool contains(double value) const;
  /// E.g. "at least 1", "at least 0 and below 1".
  [[nodiscard]] std::string text() const;
};

/// A member of `Options` that is one of an enumeration's values, by their names.
struct ChoiceMember {
  std::span<const std::string_view> names;
  std::string_view (*get)(const Options& options);
  /// Returns false if there is no value of that name.
  bool (*set)(Options& options, std::string_view name);
};

/// The member of `Options` that a flag sets; its type is the flag's.
using FlagMember =
    std::variant<bool Options::*, int Options::*, std::int64_t Options::*, std::uint64_t Options::*,
                 double Options::*, Length Options::*, std::string Options::*, std::vector<Length> Options::*,
                 std::vector<double> Options::*, std::vector<const Metric*> Options::*, ChoiceMember>;

/// The units that a length may have.
enum class LengthUnits { steps, steps_or_epochs, any };

/// Whether the member is a switch or a number.
template <typename Member>
inline constexpr bool is_plain = false;
template <typename T>
inline constexpr bool is_plain<T Options::*> = std::is_arithmetic_v<T>;

/// One flag. Flags are defined in a single table: the parser, --help, JSON in both directions, --describe and
/// `validate` are derived from it.
struct Flag {
  std::string_view name;
  FlagGroup group;
  FlagMember member;
  std::string help;
  Range range = {};       ///< For numbers and lengths.
  bool rare = false;      ///< Only in --help=all.
  bool this_run = false;  ///< Says where and how to run: never taken from a checkpoint.
  LengthUnits units = LengthUnits::steps_or_epochs;  ///< For lengths.

  [[nodiscard]] bool is_switch() const { return std::holds_alternative<bool Options::*>(member); }
  /// The range or the choices in words; may be empty.
  [[nodiscard]] std::string allowed() const;
};

/// All flags, in the order of --help.
std::span<const Flag> all_flags();
/// Null if there is no flag of that name.
const Flag* find_flag(std::string_view name);

/// The flag's value as on the command line.
std::string value_text(const Flag& flag, const Options& options);
/// Sets the flag's member from command-line text. Throws `invalid_argument` if the text is not of its type,
/// or none of its choices.
void assign(const Flag& flag, std::string_view text, Options& options);
void copy_value(const Flag& flag, const Options& from, Options& to);

}  // namespace nmt
