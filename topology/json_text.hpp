#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <exception>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/topology/as_index.hpp"
#include "topology/refuse.hpp"

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

/// Calls the action; its `invalid_argument` becomes `corrupt_data` of the source.
template <typename Action>
auto check_source(std::string_view source, Action action) {
  try {
    return action();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) throw;
    fail_with(ErrorCode::corrupt_data, "{}: {}", source, error.what());
  }
}

/// An enumerator's name in a table of the names in the enumerators' order.
template <std::size_t n>
constexpr std::string_view name_in(const std::array<std::string_view, n>& names, auto enumerator) {
  const auto index = as_index(enumerator);
  return index < n ? names[index] : "unknown";
}

/// The enumerators from the first one to `last`.
template <auto last>
constexpr auto all_to = [] {
  std::array<decltype(last), as_index(last) + 1> all{};
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<decltype(last)>(i);
  return all;
}();

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
