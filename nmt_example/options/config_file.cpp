#include "nmt_example/options/config_file.hpp"

#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "ddl/error.hpp"
#include "nmt_example/options/yaml.hpp"

namespace nmt {
namespace {

std::string text_of_file(const std::string& path, const std::string& flag) {
  std::ifstream file(path);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (file) return text.str();
  throw ddl::Error(ddl::ErrorCode::io,
                   fmt::format("--{}={}: cannot be read: {}", flag, path, std::strerror(errno)));
}

bool is_yaml(const std::string& path, const std::string& text) {
  if (path.ends_with(".yaml") || path.ends_with(".yml")) return true;
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return !path.ends_with(".json") && first != std::string::npos && text[first] != '{' && text[first] != '[';
}

}  // namespace

std::vector<Setting> options_in_file(const std::string& path, const std::string& flag) {
  const std::string text = text_of_file(path, flag);
  std::vector<Setting> settings;
  if (is_yaml(path, text)) {
    const YamlObject object = yaml_object(text, path);
    settings =
        options_in_json(object.json, path, [&](const std::string& name) { return object.lines.at(name); });
  } else {
    settings = options_in_json(text, path, [&](const std::string& name) { return line_of_key(text, name); });
  }
  std::erase_if(settings, [](const Setting& setting) {
    return setting.name == "hparams_path" || setting.name == "config";
  });
  return settings;
}

}  // namespace nmt
