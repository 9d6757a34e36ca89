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

/// Quotes foreign text for a message: at most 100 characters, unprintable bytes as '?'.
inline std::string in_quotes(std::string_view text) {
  constexpr std::size_t longest = 100;
  std::string result = "'";
  for (const char c : text.substr(0, longest)) result += c >= ' ' && c <= '~' ? c : '?';
  result += text.size() > longest ? "...'" : "'";
  return result;
}

/// Makes a foreign message printable: at most 200 characters, unprintable bytes as '?'.
inline std::string printable(std::string_view text) {
  std::string result;
  for (const char c : text.substr(0, 200)) result += c >= ' ' && c <= '~' ? c : '?';
  return result;
}

/// A JSON library's error message, without its prefix "[json.exception...] ".
inline std::string json_problem(const std::exception& error) {
  const std::string_view what = error.what();
  const auto prefix_end = what.find("] ");
  return printable(prefix_end == what.npos ? what : what.substr(prefix_end + 2));
}

/// Calls `action`, and turns its `invalid_argument` into `corrupt_data` naming `source`.
template <typename Action>
auto check_source(std::string_view source, Action action) {
  try {
    return action();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) throw;
    fail_with(ErrorCode::corrupt_data, "{}: {}", source, error.what());
  }
}

/// The name of an enumerator; `names` are in the order of the enumerators.
template <std::size_t n>
constexpr std::string_view name_in(const std::array<std::string_view, n>& names, auto enumerator) {
  const auto index = as_index(enumerator);
  return index < n ? names[index] : "unknown";
}

/// All enumerators up to `last`.
template <auto last>
constexpr auto all_to = [] {
  std::array<decltype(last), as_index(last) + 1> all{};
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<decltype(last)>(i);
  return all;
}();

/// The enumerator in `all` whose `to_string` is `name`.
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
