#pragma once

#include <fmt/format.h>

#include <concepts>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "ddl/error.hpp"
#include "topology/json_text.hpp"

namespace ddl::collectives {

/// Structs that go from rank to rank as JSON. Each lists its fields once, for both directions:
///
///   void visit_fields(Either<JobFailure> auto& failure, const auto& visit) {
///     visit("rank", failure.rank);
///     visit("kind", failure.kind, kinds);  // an enumerator by its name, with all that there are
///   }
///
/// An optional that holds nothing is left out.
using Json = nlohmann::ordered_json;

template <typename T, typename Struct>
concept Either = std::same_as<std::remove_const_t<T>, Struct>;

template <typename T>
constexpr bool is_optional = false;
template <typename T>
constexpr bool is_optional<std::optional<T>> = true;

template <typename Struct>
concept HasFields = requires(Struct& value) {
  visit_fields(value, [](auto&&...) {});
};

template <HasFields Struct>
void to_json(Json& object, const Struct& value) {
  visit_fields(value, [&]<typename Field>(const char* name, const Field& field, const auto&...) {
    if constexpr (std::is_enum_v<Field>) {
      object[name] = to_string(field);
    } else if constexpr (is_optional<Field>) {
      if (field) object[name] = *field;
    } else {
      object[name] = field;
    }
  });
}

template <HasFields Struct>
void from_json(const Json& object, Struct& value) {
  visit_fields(value, [&]<typename Field>(const char* name, Field& field, const auto&... all) {
    if constexpr (std::is_enum_v<Field>) {
      const auto found = topology::named(all..., object.at(name).template get<std::string>());
      if (!found) throw Error(ErrorCode::corrupt_data, fmt::format("{}: unknown value", name));
      field = *found;
    } else if constexpr (is_optional<Field>) {
      if (object.contains(name)) object.at(name).get_to(field.emplace());
    } else {
      object.at(name).get_to(field);
    }
  });
}

template <HasFields Struct>
std::string json_text(const Struct& value) {
  return Json(value).dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Throws `corrupt_data`, naming `what`. Memory follows the text's length: nothing in it is a number of
/// things to allocate.
template <HasFields Struct>
Struct parse_json(std::string_view text, std::string_view what) {
  try {
    return Json::parse(text).get<Struct>();
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::corrupt_data, fmt::format("{}: {}", what, topology::json_problem(error)));
  }
}

}  // namespace ddl::collectives
