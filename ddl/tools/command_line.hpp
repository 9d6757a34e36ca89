#pragma once

#include <fmt/format.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ddl/error.hpp"

namespace ddl::tools {

/// An error in the command line; the tool prints the message and ends with status 2.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message) : Error(ErrorCode::invalid_argument, message) {}
};

template <typename... Arguments>
[[noreturn]] void refuse_usage(fmt::format_string<Arguments...> message, Arguments&&... arguments) {
  throw UsageError(fmt::format(message, std::forward<Arguments>(arguments)...));
}

struct Flag {
  std::string_view name;  ///< "--topology"
  bool takes_value = false;
  char letter = 0;       ///< Short form: 'o' makes "-o" the same flag.
  bool repeats = false;  ///< May be given several times.
};

struct CommandLine {
  std::vector<std::string> words;  ///< Arguments that are not flags, in order; "-" is one.
  std::map<std::string, std::vector<std::string>, std::less<>> flags;  ///< Values by name; "" for no value.

  [[nodiscard]] bool has(std::string_view flag) const { return flags.contains(flag); }
  /// The last value; `otherwise` if the flag is not given.
  [[nodiscard]] std::string value(std::string_view flag, std::string_view otherwise = {}) const;
  [[nodiscard]] std::vector<std::string> values(std::string_view flag) const;
  /// The value as an integer. Throws UsageError unless it is one from `least` to `most`.
  [[nodiscard]] int integer(std::string_view flag, int otherwise, int least, int most) const;

  // Each `read` sets `to` to the value of a flag that is given. Throws UsageError for an invalid value.
  void read(std::string_view flag, std::string& to) const;  ///< The value must not be empty.
  void read(std::string_view flag, double& to, double least, double most) const;
  /// Accepts K, M and G as powers of 1024, as nccl-tests does.
  template <std::integral Number>
  void read(std::string_view flag, Number& to, std::uint64_t least, std::uint64_t most) const {
    if (has(flag)) to = static_cast<Number>(whole_number(flag, value(flag), least, most));
  }
  template <std::integral Number>
  void read(std::string_view flag, std::vector<Number>& to, std::uint64_t least, std::uint64_t most) const {
    if (has(flag)) to.clear();
    for (const std::string& text : values(flag)) {
      to.push_back(static_cast<Number>(whole_number(flag, text, least, most)));
    }
  }
  /// Accepts the names of `choices`.
  template <typename Value>
  void read(std::string_view flag, Value& to,
            const std::vector<std::pair<std::string_view, Value>>& choices) const {
    std::vector<std::string_view> names;
    for (const auto& [name, choice] : choices) {
      if (has(flag) && value(flag) == name) return static_cast<void>(to = choice);
      names.push_back(name);
    }
    if (has(flag)) refuse_choice(flag, value(flag), names);
  }

 private:
  static std::uint64_t whole_number(std::string_view flag, std::string_view text, std::uint64_t least,
                                    std::uint64_t most);
  [[noreturn]] static void refuse(std::string_view flag, std::string_view found, std::string_view expected);
  [[noreturn]] static void refuse_choice(std::string_view flag, std::string_view found,
                                         const std::vector<std::string_view>& names);
};

/// Parses "--flag value", "--flag=value" and words in any order; after "--" all arguments are words. Throws
/// UsageError for an unknown flag (naming the nearest), a repeated flag, and a missing or extra value.
CommandLine parse_command_line(std::span<const std::string> arguments, std::span<const Flag> flags);
/// As parse_command_line, for a program that takes no words.
CommandLine parse_flags(std::span<const std::string> arguments, std::span<const Flag> flags);

/// Which errors of a program are errors in its command line.
enum class Failures { usage_errors, invalid_arguments };

/// `main` of a program: prints `help` for --help, -h or the command `help`, otherwise calls `run` with the
/// arguments. Prints exceptions of `run` to standard error; the exit status is 2 for errors in the command
/// line, as `failures` says, and 1 for others.
int main_of(std::string_view name, std::string_view help, int count, char** arguments,
            const std::function<int(const std::vector<std::string>&)>& run,
            Failures failures = Failures::invalid_arguments);

/// Calls `action`, and turns its errors into a UsageError that begins with `flag`.
template <typename Action>
auto read_for(std::string_view flag, Action action) {
  try {
    return action();
  } catch (const Error& error) {
    throw UsageError(std::string(flag) + ": " + error.what());
  }
}

/// Parses a number from `least` to `most`. Throws a UsageError that begins with `flag`.
double parse_number(std::string_view flag, std::string_view text, double least, double most);

}  // namespace ddl::tools
