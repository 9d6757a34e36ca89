#pragma once

#include <fmt/core.h>

#include <concepts>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

#include "ddl/error.hpp"
#include "nmt_example/text/utf8.hpp"

namespace nmt {

/// Returns what `read` makes of the JSON value that `text` is. Throws `corrupt_data`, "SOURCE: problem", if
/// it is none, if it is nested too deeply for functions that call themselves for each level, or if `read`
/// throws an exception of the JSON library or a std::range_error.
template <typename Read>
auto read_json(std::string_view text, std::string_view source, Read read) {
  using Json = nlohmann::ordered_json;
  const auto refuse = [&](const std::exception& error) {
    return ddl::Error(ddl::ErrorCode::corrupt_data, fmt::format("{}: {}", source, printable(error.what())));
  };
  constexpr int deepest = 100;
  const auto check_depth = [](int depth, Json::parse_event_t, Json&) {
    if (depth > deepest) throw std::range_error(fmt::format("lists within lists, {} deep", depth));
    return true;
  };
  try {
    return read(Json::parse(text, check_depth));
  } catch (const Json::exception& error) {
    throw refuse(error);
  } catch (const std::range_error& error) {
    throw refuse(error);
  }
}

/// A whole number of the type. Throws a std::range_error for anything else.
template <std::integral T>
T whole_number(const nlohmann::ordered_json& value) {
  const bool fits =
      value.is_number_unsigned()
          ? value.get<std::uint64_t>() <= std::uint64_t{std::numeric_limits<T>::max()}
          : value.is_number_integer() && std::is_signed_v<T> &&
                value.get<std::int64_t>() >= static_cast<std::int64_t>(std::numeric_limits<T>::min());
  if (fits) return value.get<T>();
  throw std::range_error(fmt::format("found {}, expected a whole number from {} to {}", value.dump(),
                                     std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
}

}  // namespace nmt
