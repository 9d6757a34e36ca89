#include "perf/number_flags.hpp"

#include <fmt/format.h>

#include <charconv>

#include "ddl/error.hpp"

namespace perf {

void parse_number_flags(std::span<const std::string_view> words,
                        const std::map<std::string_view, NumberFlag>& numbers, std::string& json) {
  for (std::size_t i = 0; i < words.size(); i += 2) {
    const auto number = numbers.find(words[i]);
    if (i + 1 == words.size() || (number == numbers.end() && words[i] != "--json")) {
      throw ddl::Error(ddl::ErrorCode::invalid_argument,
                       fmt::format("found '{}', expected --name value; --help says more", words[i]));
    }
    const std::string_view text = words[i + 1];
    if (number == numbers.end()) {
      json = text;
      continue;
    }
    const auto [value, least] = number->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
    if (error != std::errc{} || end != text.data() + text.size() || *value < least) {
      throw ddl::Error(ddl::ErrorCode::invalid_argument,
                       fmt::format("{}: found '{}', expected a number of {} or more", words[i], text, least));
    }
  }
}

}  // namespace perf
