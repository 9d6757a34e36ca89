#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ddl/options.hpp"
#include "ddl/tools/topo_commands.hpp"

namespace ddl::tools {
namespace {

std::string or_dash(const std::string& text) { return text.empty() ? "-" : text; }

std::string given_by(const OptionSetting& setting) {
  if (setting.word.empty()) return setting.variable;
  if (setting.variable.empty()) return fmt::format("DDL_OPTIONS=\"{} ...\"", setting.word);
  return fmt::format("{} or DDL_OPTIONS=\"{} ...\"", setting.variable, setting.word);
}

}  // namespace

std::string option_list_text() {
  const std::vector<OptionSetting> settings = option_settings();
  std::size_t widest_name = 0;
  std::size_t widest_value = 0;
  for (const OptionSetting& setting : settings) {
    widest_name = std::max(widest_name, setting.name.size());
    widest_value = std::max(widest_value, setting.value.size());
  }
  std::string text =
      "Later sources override earlier ones: defaults, the file of DDL_OPTIONS_FILE (name = value), "
      "variables, "
      "DDL_OPTIONS, a program's flags.\n\n";
  for (const OptionSetting& setting : settings) {
    text += fmt::format("{:<{}}  {:<{}}  from {}\n", setting.name, widest_name, or_dash(setting.value),
                        widest_value, setting.origin);
    text += fmt::format("  {}\n  by {}: {}; default {}\n", setting.help, given_by(setting), setting.expected,
                        or_dash(setting.default_value));
  }
  return text;
}

std::string option_list_json() {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const OptionSetting& setting : option_settings()) {
    list.push_back({{"name", setting.name},
                    {"value", setting.value},
                    {"default", setting.default_value},
                    {"origin", setting.origin},
                    {"variable", setting.variable},
                    {"word", setting.word},
                    {"expected", setting.expected},
                    {"help", setting.help}});
  }
  return list.dump(2) + "\n";
}

}  // namespace ddl::tools
