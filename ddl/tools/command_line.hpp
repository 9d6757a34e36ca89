#pragma once

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

/// The command line is wrong; the tool prints the message and ends with 2.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message) : Error(ErrorCode::invalid_argument, message) {}
};

struct Flag {
  std::string_view name;  ///< "--topology"
  bool takes_value = false;
  char letter = 0;              ///< 'o': "-o" is the same flag.
  bool value_optional = false;  ///< With takes_value: the next argument is the value unless it is a flag.
  bool repeats = false;         ///< May be given several times.
};

struct CommandLine {
  std::vector<std::string> words;  ///< What is not a flag, in order; "-" is such a word.
  std::map<std::string, std::vector<std::string>, std::less<>> flags;  ///< Values by name; "" if without.

  [[nodiscard]] bool has(std::string_view flag) const { return flags.contains(flag); }
  /// `otherwise` if the flag is not there.
  [[nodiscard]] std::string value(std::string_view flag, std::string_view otherwise = {}) const;
  [[nodiscard]] std::vector<std::string> values(std::string_view flag) const;
  /// As an integer. Throws UsageError unless it is one from `least` to `most`.
  [[nodiscard]] int integer(std::string_view flag, int otherwise, int least, int most) const;

  // Set `to` to the flag's value if it is there. Throw UsageError for another value than is expected.
  void read(std::string_view flag, std::string& to) const;  ///< Not empty.
  void read(std::string_view flag, double& to, double least, double most) const;
  /// K, M and G are powers of 1024.
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
  /// One of several, by its name.
  template <typename Value>
  void read(std::string_view flag, Value& to,
            const std::vector<std::pair<std::string_view, Value>>& choices) const {
    std::string names;
    for (const auto& [name, choice] : choices) {
      if (has(flag) && value(flag) == name) return static_cast<void>(to = choice);
      names += (names.empty() ? "" : ", ") + std::string(name);
    }
    if (has(flag)) refuse(flag, value(flag), "one of " + names);
  }

 private:
  static std::uint64_t whole_number(std::string_view flag, std::string_view text, std::uint64_t least,
                                    std::uint64_t most);
  [[noreturn]] static void refuse(std::string_view flag, std::string_view found, std::string_view expected);
};

/// "--flag value", "--flag=value" and words in any order; after "--" all are words. Throws UsageError for a
/// flag that is unknown (naming the nearest), repeats, lacks its value or has one too many.
CommandLine parse_command_line(std::span<const std::string> arguments, std::span<const Flag> flags);
/// The same, for a program that takes no words.
CommandLine parse_flags(std::span<const std::string> arguments, std::span<const Flag> flags);

/// `main` of a program: prints `help` if that is asked for, else calls `run` with the arguments. What it
/// throws goes to standard error; the exit status is 2 for `invalid_argument`, else 1.
int main_of(std::string_view name, std::string_view help, int count, char** arguments,
            const std::function<int(const std::vector<std::string>&)>& run);

/// The same for a tool, of which `help` is a word too: the exit status is 2 for `UsageError` alone.
int tool_main_of(std::string_view name, std::string_view help, int count, char** arguments,
                 const std::function<int(const std::vector<std::string>&)>& run);

/// Calls the action; its `invalid_argument` becomes a UsageError that begins with `flag`.
template <typename Action>
auto read_for(std::string_view flag, Action action) {
  try {
    return action();
  } catch (const Error& error) {
    throw UsageError(std::string(flag) + ": " + error.what());
  }
}

/// "65536", "64K", "25M" or "1G" (powers of 1024, as in nccl-tests), from 1 byte to 1024G. Throws UsageError
/// that begins with `flag`.
std::uint64_t parse_bytes(std::string_view flag, std::string_view text);

/// A number from `least` to `most`. Throws UsageError that begins with `flag`.
double parse_number(std::string_view flag, std::string_view text, double least, double most);

}  // namespace ddl::tools
