#include "nmt_example/options/yaml.hpp"

#include <fmt/core.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ddl/error.hpp"
#include "nmt_example/text/utf8.hpp"

namespace nmt {
namespace {

using Json = nlohmann::ordered_json;

Json scalar(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() == "!") return text;  // in quotes
  if (text == "True" || text == "False") return text == "True";
  if (text == "~") return nullptr;
  const Json value = Json::parse(text, nullptr, false);
  return value.is_primitive() && !value.is_string() ? value : Json(text);
}

/// `levels`: how many of lists and mappings within one another are read; an alias may name what it is in.
Json value_of(const YAML::Node& node, int levels) {
  if (levels == 0 && !node.IsScalar() && !node.IsNull()) {
    throw YAML::Exception(node.Mark(), "lists within lists; expected a value or a list of values");
  }
  switch (node.Type()) {
    case YAML::NodeType::Scalar:
      return scalar(node);
    case YAML::NodeType::Sequence: {
      Json list = Json::array();
      for (const YAML::Node& part : node) list.push_back(value_of(part, levels - 1));
      return list;
    }
    case YAML::NodeType::Map: {
      Json object = Json::object();
      for (const auto& entry : node) object[entry.first.Scalar()] = value_of(entry.second, levels - 1);
      return object;
    }
    default:
      return nullptr;
  }
}

}  // namespace

YamlObject yaml_object(const std::string& text, const std::string& origin) try {
  if (const std::size_t at = std::min(first_invalid_utf8(text).value_or(text.size()), text.find('\0'));
      at < text.size()) {
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    throw ddl::Error(ddl::ErrorCode::corrupt_data, fmt::format("{}:{}: not UTF-8 text", origin, line));
  }
  const YAML::Node root = YAML::Load(text);
  if (!root.IsMap()) {
    throw ddl::Error(
        ddl::ErrorCode::corrupt_data,
        fmt::format("{}: expected a mapping of options, as \"num_units: 64\" in a line", origin));
  }
  YamlObject object{.json = value_of(root, 2).dump(), .lines = {}};
  for (const auto& entry : root) object.lines[entry.first.Scalar()] = entry.first.Mark().line + 1;
  return object;
} catch (const YAML::Exception& error) {
  throw ddl::Error(ddl::ErrorCode::corrupt_data,
                   fmt::format("{}:{}: not YAML: {}", origin, error.mark.line + 1, printable(error.msg)));
} catch (const Json::exception& error) {  // yaml-cpp makes no UTF-8 of the escapes \_ and \N
  throw ddl::Error(ddl::ErrorCode::corrupt_data,
                   fmt::format("{}: not UTF-8 text: {}", origin, printable(error.what())));
}

}  // namespace nmt
