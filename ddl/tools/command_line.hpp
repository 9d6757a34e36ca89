#pragma once

#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace ddl::tools {

/// The command line is wrong; the tool prints the message and ends with 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Flag {
  std::string_view name;  ///< "--topology" or "-o"
  bool takes_value = false;
  bool value_optional = false;  ///< With takes_value: the next argument is the value unless it is a flag.
};

struct CommandLine {
  std::vector<std::string> words;  ///< What is not a flag, in order; "-" is such a word.
  std::map<std::string, std::string, std::less<>> flags;  ///< By name; those without value hold "".

  [[nodiscard]] bool has(std::string_view flag) const { return flags.contains(flag); }
  /// `otherwise` if the flag is not there.
  [[nodiscard]] std::string value(std::string_view flag, std::string_view otherwise = {}) const;
  /// As an integer. Throws UsageError unless it is one from `least` to `most`.
  [[nodiscard]] int integer(std::string_view flag, int otherwise, int least, int most) const;
};

/// "--flag value", "--flag=value" and words in any order; after "--" all are words. Throws UsageError for a
/// flag that is unknown (naming the nearest), repeats, lacks its value or has one too many.
CommandLine parse_command_line(std::span<const std::string> arguments, std::span<const Flag> flags);

}  // namespace ddl::tools
