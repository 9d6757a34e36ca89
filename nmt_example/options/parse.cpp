#include <fmt/core.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "ddl/error.hpp"
#include "nmt_example/options/flag_table.hpp"
#include "nmt_example/options/json.hpp"
#include "nmt_example/options/nearest_name.hpp"
#include "nmt_example/options/options.hpp"
#include "nmt_example/options/presets.hpp"
#include "nmt_example/options/tensorflow_nmt_flags.hpp"

namespace nmt {
namespace {

namespace po = boost::program_options;
using Settings = std::vector<std::pair<std::string, std::string>>;  // flag, value

[[noreturn]] void fail(const std::string& message) {
  throw ddl::Error(ddl::ErrorCode::invalid_argument,
                   message + (message.ends_with('?') ? " --help" : "; --help") + " lists all flags");
}

std::string help_of(const Flag& flag) {
  std::string text(flag.help);
  const std::string allowed = flag.allowed();
  if (!allowed.empty()) text += fmt::format(" [{}]", allowed);
  const std::string value = value_text(flag, Options());
  return text + fmt::format(" (default {})", value.empty() ? "\"\"" : value);
}

po::options_description described(FlagGroup group) {
  po::options_description description(std::string(title(group)), 110, 70);
  for (const Flag& flag : all_flags()) {
    if (flag.group != group) continue;
    auto* value = po::value<std::string>()->value_name(flag.is_switch() ? "[BOOL]" : "VALUE");
    description.add_options()(std::string(flag.name).c_str(), value, help_of(flag).c_str());
  }
  return description;
}

constexpr FlagGroup groups[] = {FlagGroup::model, FlagGroup::training, FlagGroup::data, FlagGroup::running,
                                FlagGroup::inference};

po::options_description documented_flags() {
  po::options_description description(110, 70);
  for (const FlagGroup group : groups) description.add(described(group));
  po::options_description general("General", 110, 70);
  general.add_options()("help,h", "This text")("version", "The version");
  return description.add(general);
}

bool is_switch(const std::string& name) {
  const Flag* flag = find_flag(name);
  const TensorflowNmtFlag* known = find_tensorflow_nmt_flag(name);
  return (flag != nullptr && flag->is_switch()) || (known != nullptr && known->is_switch);
}

// Boost parses neither `--attention=` (an empty value) nor a switch with an optional value, and it takes a
// flag for the value of the flag before it.
std::vector<po::option> read_adjacent_value_or_switch(std::vector<std::string>& arguments) {
  const std::string token = arguments.front();
  if (!token.starts_with("--") || token.size() == 2) return {};
  const std::size_t equals = token.find('=');
  const std::string name = token.substr(2, equals == std::string::npos ? equals : equals - 2);
  po::option option(name, {});
  std::size_t used = 1;
  if (equals != std::string::npos) {
    option.value = {token.substr(equals + 1)};
  } else if (is_switch(name)) {
    static constexpr std::string_view words[] = {"true", "false", "True", "False"};
    const bool has_value = arguments.size() > 1 && std::ranges::find(words, arguments[1]) != std::end(words);
    option.value = {has_value ? arguments[1] : "true"};
    used = has_value ? 2 : 1;
  } else {
    const bool known = find_flag(name) != nullptr || find_tensorflow_nmt_flag(name) != nullptr;
    if (known && arguments.size() > 1 && arguments[1].starts_with("--")) {
      fail(fmt::format("--{}: its value is missing before {}", name, arguments[1]));
    }
    return {};
  }
  option.original_tokens.assign(arguments.begin(), arguments.begin() + static_cast<std::ptrdiff_t>(used));
  arguments.erase(arguments.begin(), arguments.begin() + static_cast<std::ptrdiff_t>(used));
  return {option};
}

po::parsed_options split(int argc, const char* const* argv, const po::options_description& known) {
  namespace style = po::command_line_style;
  return po::command_line_parser(std::vector<std::string>(argv + std::min(argc, 1), argv + argc))
      .options(known)
      .style(style::unix_style & ~style::allow_guessing)
      .extra_style_parser(read_adjacent_value_or_switch)
      .run();
}

Settings read_flags(int argc, const char* const* argv, ParsedOptions& parsed) {
  po::options_description known = documented_flags();
  for (const TensorflowNmtFlag& flag : tensorflow_nmt_flags()) {
    known.add_options()(std::string(flag.name).c_str(), po::value<std::string>());
  }
  Settings settings;
  try {
    for (const po::option& option : split(argc, argv, known).options) {
      const std::string& name = option.string_key;
      if (name.empty())
        fail(fmt::format("unexpected argument '{}': flags start with --", option.value.at(0)));
      if (name == "help" || name == "version") {
        (name == "help" ? parsed.help : parsed.version) = true;
      } else if (const TensorflowNmtFlag* flag = find_tensorflow_nmt_flag(name)) {
        check_tensorflow_nmt_flag(*flag, option.value.at(0));
      } else {
        settings.emplace_back(name, option.value.at(0));
      }
    }
  } catch (const po::unknown_option& error) {
    std::string name = error.get_option_name();
    name = name.substr(0, name.find('='));
    name.erase(0, name.find_first_not_of('-'));
    fail(fmt::format("unknown flag --{}; did you mean --{}?", name, nearest_flag_name(name)));
  } catch (const po::error& error) {
    fail(error.what());
  }
  return settings;
}

const std::string* last_value(const Settings& settings, std::string_view name) {
  const auto found = std::find_if(settings.rbegin(), settings.rend(),
                                  [&](const auto& setting) { return setting.first == name; });
  return found == settings.rend() ? nullptr : &found->second;
}

Settings read_hparams(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file) {
    throw ddl::Error(ddl::ErrorCode::io,
                     fmt::format("--hparams_path={}: cannot be read: {}", path, std::strerror(errno)));
  }
  Settings settings = options_in_json(text.str(), path);
  std::erase_if(settings, [](const auto& setting) { return setting.first == "hparams_path"; });
  return settings;
}

void apply_consequences(Options& options, const std::vector<std::string>& explicitly_set) {
  const auto is_set = [&](std::string_view name) {
    return std::ranges::find(explicitly_set, name) != explicitly_set.end();
  };
  if (is_set("inference_input_file") && !is_set("infer")) options.infer = true;
  if (!is_set("infer_mode")) options.infer_mode = options.beam_width > 0 ? "beam_search" : "greedy";
  if (options.infer_mode == "greedy" && options.beam_width > 0) options.beam_width = 0;
  if ((is_set("train_prefix") || is_set("vocab_prefix")) && !is_set("builtin_corpus")) {
    options.builtin_corpus = 0;
  }
  if (options.encoder_layers() != options.decoder_layers() && !is_set("pass_hidden_state")) {
    options.pass_hidden_state = false;
  }
}

}  // namespace

ParsedOptions parse_options(int argc, const char* const* argv) {
  ParsedOptions parsed;
  const Settings flags = read_flags(argc, argv, parsed);
  if (parsed.help || parsed.version) return parsed;
  const std::string* path = last_value(flags, "hparams_path");
  Settings settings = path != nullptr && !path->empty() ? read_hparams(*path) : Settings();
  settings.insert(settings.end(), flags.begin(), flags.end());

  const std::string* preset = last_value(settings, "preset");
  if (preset != nullptr && !preset->empty()) apply_preset(*preset, parsed.options);
  for (const auto& [name, value] : settings) {
    assign(*find_flag(name), value, parsed.options);
    if (std::ranges::find(parsed.explicitly_set, name) == parsed.explicitly_set.end()) {
      parsed.explicitly_set.push_back(name);
    }
  }
  apply_consequences(parsed.options, parsed.explicitly_set);
  validate(parsed.options);
  return parsed;
}

Options with_explicit_options(Options base, const ParsedOptions& parsed) {
  for (const std::string& name : parsed.explicitly_set) copy_value(*find_flag(name), parsed.options, base);
  apply_consequences(base, parsed.explicitly_set);
  return base;
}

std::string help_text() {
  std::ostringstream text;
  text << "Usage: mpirun -np RANKS ddl_nmt [--flag=value | --flag value | --switch] ...\n"
          "Trains an LSTM translator on all ranks together, or translates with one (--infer).\n"
          "Flags have the names and meanings of tensorflow/nmt.\n"
       << documented_flags() << "\nPresets:\n";
  for (const Preset& preset : presets()) text << fmt::format("  {:<15} {}\n", preset.name, preset.help);
  return text.str();
}

}  // namespace nmt
