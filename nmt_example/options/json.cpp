#include "nmt_example/options/json.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "ddl/error.hpp"
#include "nmt_example/options/command_syntax.hpp"
#include "nmt_example/options/flag_table.hpp"
#include "nmt_example/options/json_text.hpp"
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

std::vector<Setting> options_in_json(const std::string& text, const std::string& origin,
                                     const std::function<int(const std::string& name)>& line_of) {
  const Json object = read_json(text, fmt::format("{}: not JSON", origin), std::identity());
  if (!object.is_object()) {
    throw ddl::Error(
        ddl::ErrorCode::corrupt_data,
        fmt::format("{}: expected a JSON object of options, found {}", origin, object.type_name()));
  }
  std::vector<Setting> result;
  for (const auto& [name, value] : object.items()) {
    if (value.is_null()) continue;  // not set
    const std::string where = line_of ? fmt::format("{}:{}", origin, line_of(name)) : origin;
    if (find_tensorflow_nmt_flag(name) != nullptr) {
      result.push_back({name, text_of(value), where});
      continue;
    }
    const Flag* flag = find_flag(name);
    if (flag == nullptr || flag->group == FlagGroup::command) {
      std::vector<std::string_view> names = flags_without_command();
      for (const TensorflowNmtFlag& known : tensorflow_nmt_flags()) names.push_back(known.name);
      throw ddl::Error(ddl::ErrorCode::invalid_argument,
                       fmt::format("{}: unknown option \"{}\"; the nearest is \"{}\"", where, printable(name),
                                   nearest_name(name, names)));
    }
    if (!has_type_of(*flag, value)) {
      throw ddl::Error(ddl::ErrorCode::invalid_argument,
                       fmt::format("{}: option \"{}\" is {}, its default is {}", where, name,
                                   printable(value.dump()), Json::parse(to_json(Options())).at(name).dump()));
    }
    result.push_back({name, text_of(value), where});
  }
  return result;
}

int line_of_key(const std::string& json, const std::string& key) {
  const std::string quoted = Json(key).dump();
  std::size_t at = json.find(quoted);
  while (at != std::string::npos) {
    const std::size_t next = json.find_first_not_of(" \t\r\n", at + quoted.size());
    if (next != std::string::npos && json[next] == ':') break;
    at = json.find(quoted, at + 1);
  }
  return 1 + static_cast<int>(std::count(
                 json.begin(), json.begin() + static_cast<std::ptrdiff_t>(at == std::string::npos ? 0 : at),
                 '\n'));
}

namespace {

std::string json_of(const Options& options, const std::function<bool(const Flag&)>& is_wanted) {
  Json object = Json::object();
  for (const Flag& flag : all_flags()) {
    if (!is_wanted(flag)) continue;
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

}  // namespace

std::string to_json(const Options& options) {
  return json_of(options, [](const Flag& flag) { return flag.group != FlagGroup::command; });
}

std::string config_of(const Options& options) {
  return json_of(options, [](const Flag& flag) {
    return flag.group != FlagGroup::general && flag.group != FlagGroup::command &&
           flag.name != "override_loaded_hparams";
  });
}

Options options_from_json(const std::string& json) {
  Options options;
  for (const auto& [name, value, where] : options_in_json(json, "options")) {
    if (const Flag* flag = find_flag(name)) {
      assign(*flag, value, options);
    } else {
      check_tensorflow_nmt_flag(*find_tensorflow_nmt_flag(name), value);
    }
  }
  return options;
}

}  // namespace nmt
