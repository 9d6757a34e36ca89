#include "nmt_example/options/json.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ddl/error.hpp"
#include "nmt_example/options/flag_table.hpp"
#include "nmt_example/options/nearest_name.hpp"
#include "nmt_example/options/tensorflow_nmt_flags.hpp"

namespace nmt {
namespace {

using Json = nlohmann::ordered_json;

/// The value as on a command line: a list is its values separated by commas.
std::string text_of(const Json& value) {
  if (!value.is_array()) return value.is_string() ? value.get<std::string>() : value.dump();
  std::string text;
  for (const Json& part : value) {
    if (!text.empty()) text += ',';
    text += text_of(part);
  }
  return text;
}

bool is_list_of_scalars(const Json& value) {
  return value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& part) {
           return part.is_string() || part.is_number();
         });
}

bool has_type_of(const Flag& flag, const Json& value) {
  return std::visit(
      [&](auto member) {
        using Member = decltype(member);
        if constexpr (std::is_same_v<Member, bool Options::*>) return value.is_boolean();
        if constexpr (std::is_same_v<Member, double Options::*>) return value.is_number();
        if constexpr (is_plain<Member>) return value.is_number_integer();
        if constexpr (std::is_same_v<Member, Length Options::*>)
          return value.is_number_integer() || value.is_string();
        return value.is_string() || is_list_of_scalars(value);
      },
      flag.member);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> options_in_json(const std::string& text,
                                                                 const std::string& origin) {
  Json object;
  try {
    object = Json::parse(text);
  } catch (const Json::exception& error) {
    throw ddl::Error(ddl::ErrorCode::corrupt_data, fmt::format("{}: not JSON: {}", origin, error.what()));
  }
  if (!object.is_object()) {
    throw ddl::Error(
        ddl::ErrorCode::corrupt_data,
        fmt::format("{}: expected a JSON object of options, found {}", origin, object.type_name()));
  }
  std::vector<std::pair<std::string, std::string>> result;
  for (const auto& [name, value] : object.items()) {
    if (value.is_null()) continue;  // not set
    if (find_tensorflow_nmt_flag(name) != nullptr) {
      result.emplace_back(name, text_of(value));
      continue;
    }
    const Flag* flag = find_flag(name);
    if (flag == nullptr) {
      throw ddl::Error(ddl::ErrorCode::invalid_argument,
                       fmt::format("{}: unknown option \"{}\"; the nearest is \"{}\"", origin, name,
                                   nearest_flag_name(name)));
    }
    if (!has_type_of(*flag, value)) {
      throw ddl::Error(ddl::ErrorCode::invalid_argument,
                       fmt::format("{}: option \"{}\" is {}, its default is {}", origin, name, value.dump(),
                                   Json::parse(to_json(Options())).at(name).dump()));
    }
    result.emplace_back(name, text_of(value));
  }
  return result;
}

std::string to_json(const Options& options) {
  Json object = Json::object();
  for (const Flag& flag : all_flags()) {
    Json& value = object[std::string(flag.name)];
    std::visit(
        [&](auto member) {
          if constexpr (is_plain<decltype(member)>) {
            value = options.*member;
            return;
          }
          value = value_text(flag, options);
          if constexpr (std::is_same_v<decltype(member), Length Options::*>) {
            const Length& length = options.*member;
            if (length.unit() == LengthUnit::steps) value = std::int64_t{length};
          }
        },
        flag.member);
  }
  // Paths may not be UTF-8, which must not make saving a checkpoint fail.
  return object.dump(2, ' ', false, Json::error_handler_t::replace);
}

Options options_from_json(const std::string& json) {
  Options options;
  for (const auto& [name, value] : options_in_json(json, "options")) {
    if (const Flag* flag = find_flag(name)) {
      assign(*flag, value, options);
    } else {
      check_tensorflow_nmt_flag(*find_tensorflow_nmt_flag(name), value);
    }
  }
  return options;
}

}  // namespace nmt
