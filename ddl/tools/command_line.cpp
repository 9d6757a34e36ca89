#include "ddl/tools/command_line.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "ddl/nearest_name.hpp"

namespace ddl::tools {

std::string CommandLine::value(std::string_view flag, std::string_view otherwise) const {
  const auto found = flags.find(flag);
  return found == flags.end() ? std::string(otherwise) : found->second;
}

int CommandLine::integer(std::string_view flag, int otherwise, int least, int most) const {
  if (!has(flag)) return otherwise;
  const std::string text = value(flag);
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < least || number > most) {
    throw UsageError(
        fmt::format("{}: found '{}', expected an integer from {} to {}", flag, text, least, most));
  }
  return number;
}

CommandLine parse_command_line(std::span<const std::string> arguments, std::span<const Flag> flags) {
  CommandLine result;
  bool are_words = false;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (are_words || !argument.starts_with('-') || argument == "-") {
      result.words.push_back(argument);
      continue;
    }
    if (argument == "--") {
      are_words = true;
      continue;
    }
    const std::size_t equals = argument.starts_with("--") ? argument.find('=') : std::string::npos;
    const std::string name = argument.substr(0, equals);
    const auto flag = std::ranges::find(flags, name, &Flag::name);
    if (flag == flags.end()) {
      std::vector<std::string_view> names;
      for (const Flag& known : flags) names.push_back(known.name);
      throw UsageError(
          fmt::format("unknown option '{}'; the nearest is {}", name, nearest_name(name, names)));
    }
    std::string value;
    if (equals != std::string::npos) {
      if (!flag->takes_value) throw UsageError(fmt::format("{} takes no value: found '{}'", name, argument));
      value = argument.substr(equals + 1);
    } else if (flag->takes_value) {
      const bool is_last = i + 1 == arguments.size();
      const bool has_value = !is_last && !(flag->value_optional && arguments[i + 1].starts_with('-'));
      if (is_last && !flag->value_optional) throw UsageError(fmt::format("{} needs a value", name));
      if (has_value) value = arguments[++i];
    }
    if (!result.flags.emplace(name, std::move(value)).second) {
      throw UsageError(fmt::format("{} is given twice", name));
    }
  }
  return result;
}

}  // namespace ddl::tools
