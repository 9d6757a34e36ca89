#include "nmt_example/options/yaml.hpp"

#include <fmt/core.h>
#include <yaml-cpp/yaml.h>

#include <nlohmann/json.hpp>

#include "ddl/error.hpp"

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

Json value_of(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Scalar:
      return scalar(node);
    case YAML::NodeType::Sequence: {
      Json list = Json::array();
      for (const YAML::Node& part : node) list.push_back(value_of(part));
      return list;
    }
    case YAML::NodeType::Map: {
      Json object = Json::object();
      for (const auto& entry : node) object[entry.first.Scalar()] = value_of(entry.second);
      return object;
    }
    default:
      return nullptr;
  }
}

}  // namespace

YamlObject yaml_object(const std::string& text, const std::string& origin) try {
  const YAML::Node root = YAML::Load(text);
  if (!root.IsMap()) {
    throw ddl::Error(
        ddl::ErrorCode::corrupt_data,
        fmt::format("{}: expected a mapping of options, as \"num_units: 64\" in a line", origin));
  }
  YamlObject object{.json = value_of(root).dump(), .lines = {}};
  for (const auto& entry : root) object.lines[entry.first.Scalar()] = entry.first.Mark().line + 1;
  return object;
} catch (const YAML::Exception& error) {
  throw ddl::Error(ddl::ErrorCode::corrupt_data,
                   fmt::format("{}:{}: not YAML: {}", origin, error.mark.line + 1, error.msg));
}

}  // namespace nmt
