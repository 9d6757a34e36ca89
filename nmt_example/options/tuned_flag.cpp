#include "nmt_example/options/tuned_flag.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "ddl/error.hpp"
#include "nmt_example/text/utf8.hpp"

namespace nmt {
namespace {

[[noreturn]] void refuse(const Options& options, const std::string& what) {
  throw ddl::Error(ddl::ErrorCode::invalid_argument,
                   fmt::format("--tune={}: {}; expected FLAG=LOW:HIGH, FLAG=LOW:HIGH:log or FLAG=A,B,C",
                               printable(options.tune), what));
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool is_whole(const Flag& flag) { return !std::holds_alternative<double Options::*>(flag.member); }

/// A flag whose value is a number, of a run's model or training.
const Flag& find_number(const Options& options, const std::string& name) {
  const Flag* const flag = find_flag(name);
  if (flag == nullptr) refuse(options, fmt::format("there is no flag --{}", printable(name)));
  const bool is_number = std::visit(
      [](auto member) {
        return is_plain<decltype(member)> && !std::is_same_v<decltype(member), bool Options::*>;
      },
      flag->member);
  if (!is_number || flag->this_run || flag->group == FlagGroup::command ||
      flag->group == FlagGroup::translating) {
    refuse(options, fmt::format("--{} is not a number that training depends on", name));
  }
  return *flag;
}

double number_of(const Options& options, const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    refuse(options, fmt::format("\"{}\" is no number", printable(text)));
  }
  return value;
}

/// `count` values from `low` to `high`.
std::vector<std::string> spread(double low, double high, bool in_ratios, int count, bool whole) {
  std::vector<std::string> values;
  for (int i = 0; i < count; ++i) {
    const double share = count == 1 ? 0 : static_cast<double>(i) / (count - 1);
    const double value = in_ratios ? low * std::pow(high / low, share) : low + (high - low) * share;
    values.push_back(whole ? fmt::format("{}", std::llround(value)) : fmt::format("{:.3g}", value));
  }
  return values;
}

std::vector<std::string> values_of(const Options& options, const Flag& flag, const std::string& text) {
  const std::vector<std::string> range = split(text, ':');
  if (range.size() == 1) return split(text, ',');
  if (range.size() > 3 || (range.size() == 3 && range[2] != "log")) refuse(options, "this is no range");
  const double low = number_of(options, range[0]), high = number_of(options, range[1]);
  const bool in_ratios = range.size() == 3;
  if (low >= high)
    refuse(options, fmt::format("{} is not below {}", printable(range[0]), printable(range[1])));
  if (in_ratios && low <= 0)
    refuse(options, fmt::format("equal ratios cannot start at {}", printable(range[0])));
  return spread(low, high, in_ratios, options.candidates, is_whole(flag));
}

}  // namespace

TunedFlag tuned_flag(const Options& options) {
  TunedFlag tuned{find_flag("learning_rate"), {}};
  if (options.tune.empty()) {
    const double middle = options.learning_rate;
    tuned.values = spread(middle / 4, middle * 4, true, options.candidates, false);
  } else {
    const std::size_t equals = options.tune.find('=');
    if (equals == std::string::npos) refuse(options, "there is no \"=\"");
    tuned.flag = &find_number(options, options.tune.substr(0, equals));
    tuned.values = values_of(options, *tuned.flag, options.tune.substr(equals + 1));
  }
  std::vector<std::string> different;
  for (const std::string& value : tuned.values) {
    Options tried = options;
    assign(*tuned.flag, value, tried);
    validate_values(tried);
    const std::string text = value_text(*tuned.flag, tried);
    if (std::ranges::find(different, text) == different.end()) different.push_back(text);
  }
  tuned.values = different;
  if (different.size() < 2) {
    throw ddl::Error(ddl::ErrorCode::invalid_argument,
                     fmt::format("--{}={}: there is nothing to choose from; expected at least two values",
                                 tuned.flag->name, different.front()));
  }
  return tuned;
}

}  // namespace nmt
