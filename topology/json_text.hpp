#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <vector>

namespace ddl::topology {

/// What is quoted from a file, shortened and with odd bytes replaced.
inline std::string in_quotes(std::string_view text) {
  constexpr std::size_t longest = 60;
  std::string result = "'";
  for (const char c : text.substr(0, longest)) result += c >= ' ' && c <= '~' ? c : '?';
  result += text.size() > longest ? "...'" : "'";
  return result;
}

/// The same without quotes and with more room: a JSON library's message.
inline std::string printable(std::string_view text) {
  std::string result;
  for (const char c : text.substr(0, 200)) result += c >= ' ' && c <= '~' ? c : '?';
  return result;
}

/// A JSON library's message of what is wrong, without its own prefix "[json.exception...] ".
inline std::string json_problem(const std::exception& error) {
  const std::string_view what = error.what();
  const auto prefix_end = what.find("] ");
  return printable(prefix_end == what.npos ? what : what.substr(prefix_end + 2));
}

/// The enumerators from the first one to `last`.
template <typename Enum>
constexpr auto all_to(Enum last) {
  return std::views::iota(0, static_cast<int>(last) + 1) |
         std::views::transform([](int value) { return static_cast<Enum>(value); });
}

/// The value of one of a set of enumerators, as `to_string` spells them.
template <typename All>
auto named(const All& all, std::string_view name) -> std::optional<std::ranges::range_value_t<All>> {
  for (const auto value : all) {
    if (to_string(value) == name) return value;
  }
  return std::nullopt;
}

template <typename All>
std::string names(const All& all) {
  std::vector<std::string_view> result;
  for (const auto value : all) result.push_back(to_string(value));
  return fmt::format("one of {}", fmt::join(result, ", "));
}

}  // namespace ddl::topology
