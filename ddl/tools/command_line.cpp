#include "ddl/tools/command_line.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <limits>
#include <optional>

#include "ddl/tools/topo_commands.hpp"
#include "topology/text.hpp"

namespace ddl::tools {
namespace {

namespace po = boost::program_options;

po::parsed_options split(std::span<const std::string> arguments, std::span<const Flag> flags) {
  po::options_description known;
  for (const Flag& flag : flags) {
    std::string name(flag.name.substr(2));
    if (flag.letter != 0) name += fmt::format(",{}", flag.letter);
    if (flag.takes_value) {
      known.add_options()(name.c_str(), po::value<std::string>());
    } else {
      known.add_options()(name.c_str(), "");
    }
  }
  namespace style = po::command_line_style;
  return po::command_line_parser(std::vector<std::string>(arguments.begin(), arguments.end()))
      .options(known)
      .style(style::unix_style & ~style::allow_guessing & ~style::allow_sticky)
      .run();
}

/// Parses a whole number with an optional K, M or G (powers of 1024); nothing if malformed or too large.
std::optional<std::uint64_t> scaled_number(std::string_view text) {
  constexpr std::string_view units = "KkMmGg";
  const std::size_t unit = text.empty() ? units.npos : units.find(text.back());
  const std::size_t shift = unit == units.npos ? 0 : 10 * (unit / 2 + 1);
  if (shift > 0) text.remove_suffix(1);
  const auto number = parse_whole<std::uint64_t>(text);
  const bool fits = number && *number <= std::numeric_limits<std::uint64_t>::max() >> shift;
  return fits ? std::optional(*number << shift) : std::nullopt;
}

[[noreturn]] void refuse_unknown(std::string name, std::span<const Flag> flags) {
  name.resize(std::min(name.find('='), name.size()));
  std::vector<std::string_view> names;
  for (const Flag& known : flags) names.push_back(known.name);
  refuse_usage("unknown option '{}'; the nearest is {}", name, nearest_name(name, names));
}

}  // namespace

std::vector<std::string> CommandLine::values(std::string_view flag) const {
  const auto found = flags.find(flag);
  return found == flags.end() ? std::vector<std::string>() : found->second;
}

std::string CommandLine::value(std::string_view flag, std::string_view otherwise) const {
  return has(flag) ? values(flag).back() : std::string(otherwise);
}

int CommandLine::integer(std::string_view flag, int otherwise, int least, int most) const {
  if (!has(flag)) return otherwise;
  const auto number = parse_whole<int>(value(flag));
  if (!number || *number < least || *number > most) {
    refuse(flag, value(flag), fmt::format("an integer from {} to {}", least, most));
  }
  return *number;
}

void CommandLine::read(std::string_view flag, std::string& to) const {
  if (!has(flag)) return;
  to = value(flag);
  if (to.empty()) refuse(flag, to, "a value that is not empty");
}

void CommandLine::read(std::string_view flag, double& to, double least, double most) const {
  if (has(flag)) to = parse_number(flag, value(flag), least, most);
}

std::uint64_t CommandLine::whole_number(std::string_view flag, std::string_view text, std::uint64_t least,
                                        std::uint64_t most) {
  const auto number = scaled_number(text);
  if (!number || *number < least || *number > most) {
    refuse(flag, text, fmt::format("a number from {} to {}; K, M and G are powers of 1024", least, most));
  }
  return *number;
}

void CommandLine::refuse(std::string_view flag, std::string_view found, std::string_view expected) {
  refuse_usage("{}: found '{}', expected {}", flag, found, expected);
}

void CommandLine::refuse_choice(std::string_view flag, std::string_view found,
                                const std::vector<std::string_view>& names) {
  refuse(flag, found,
         fmt::format("one of {}; the nearest is {}", fmt::join(names, ", "), nearest_name(found, names)));
}

CommandLine parse_command_line(std::span<const std::string> arguments, std::span<const Flag> flags) {
  CommandLine result;
  try {
    for (const po::option& option : split(arguments, flags).options) {
      if (option.string_key.empty()) {
        result.words.push_back(option.value.front());
        continue;
      }
      const Flag& flag = *std::ranges::find(flags, "--" + option.string_key, &Flag::name);
      auto& values = result.flags[std::string(flag.name)];
      if (!values.empty() && !flag.repeats) refuse_usage("{} is given twice", flag.name);
      values.push_back(option.value.empty() ? "" : option.value.front());
    }
  } catch (const po::unknown_option& error) {
    refuse_unknown(error.get_option_name(), flags);
  } catch (const po::invalid_command_line_syntax& error) {
    const std::string name = error.get_option_name();
    if (error.kind() != po::invalid_syntax::extra_parameter) {
      refuse_usage("{} needs a value", name);
    }
    const auto found =
        std::ranges::find_if(arguments, [&](const auto& a) { return a.starts_with(name + "="); });
    refuse_usage("{} takes no value: found '{}'", name, *found);
  }
  return result;
}

CommandLine parse_flags(std::span<const std::string> arguments, std::span<const Flag> flags) {
  CommandLine line = parse_command_line(arguments, flags);
  if (line.words.empty()) return line;
  refuse_usage("found '{}', expected options alone, as in {} ...", line.words.front(), flags.front().name);
}

int main_of(std::string_view name, std::string_view help, int count, char** arguments,
            const std::function<int(const std::vector<std::string>&)>& run, Failures failures) {
  const std::vector<std::string> words(arguments + std::min(count, 1), arguments + count);
  const bool asks_for_help =
      (!words.empty() && words.front() == "help") ||
      std::ranges::any_of(words, [](const auto& word) { return word == "--help" || word == "-h"; });
  try {
    if (!asks_for_help) return run(words);
    write_text("-", std::string(help));
    return 0;
  } catch (const Error& error) {
    const bool is_usage =
        dynamic_cast<const UsageError*>(&error) != nullptr ||
        (failures == Failures::invalid_arguments && error.code() == ErrorCode::invalid_argument);
    fmt::print(stderr, "{}: {}\n", name, error.what());
    if (is_usage) fmt::print(stderr, "{} --help shows how it is used.\n", name);
    return is_usage ? 2 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return 1;
  }
}

double parse_number(std::string_view flag, std::string_view text, double least, double most) {
  const auto number = parse_whole<double>(text);
  if (number && *number >= least && *number <= most) return *number;  // NaN fails both comparisons
  refuse_usage("{}: found '{}', expected a number from {} to {}", flag, text, least, most);
}

}  // namespace ddl::tools
