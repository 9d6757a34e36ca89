#include <fmt/core.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <charconv>
#include <sstream>
#include <utility>

#include "ddl/error.hpp"
#include "nmt_example/options/command_syntax.hpp"
#include "nmt_example/options/config_file.hpp"
#include "nmt_example/options/flag_table.hpp"
#include "nmt_example/options/nearest_name.hpp"
#include "nmt_example/options/options.hpp"
#include "nmt_example/options/presets.hpp"
#include "nmt_example/options/tensorflow_nmt_flags.hpp"
#include "nmt_example/text/utf8.hpp"

namespace nmt {
namespace {

namespace po = boost::program_options;
using Settings = std::vector<Setting>;

/// What a command line may hold.
class Syntax {
 public:
  explicit Syntax(const CommandSyntax* command)
      : command_(command), names_(command != nullptr ? command->flags : flags_without_command()) {
    if (command == nullptr) {
      for (const TensorflowNmtFlag& flag : tensorflow_nmt_flags()) names_.push_back(flag.name);
    }
    names_.insert(names_.end(), {"help", "version"});
  }

  [[nodiscard]] std::span<const std::string_view> names() const { return names_; }
  [[nodiscard]] bool takes_arguments() const { return command_ != nullptr && !command_->arguments.empty(); }

  [[noreturn]] void fail(const std::string& message) const {
    const std::string program = command_ != nullptr ? fmt::format("ddl_nmt {} ", command_->name) : "";
    throw ddl::Error(
        ddl::ErrorCode::invalid_argument,
        fmt::format("{}{} {}--help lists all flags", message, message.ends_with('?') ? "" : ";", program));
  }

  [[noreturn]] void refuse(const std::string& name) const {
    const std::string_view nearest = nearest_name(name, names_);
    if (find_flag(name) == nullptr) {
      fail(fmt::format("unknown flag --{}; did you mean --{}?", printable(name), nearest));
    }
    fail(fmt::format("ddl_nmt {} does not take --{}; the nearest flag that it takes is --{}",
                     command_ != nullptr ? command_->name : "without a command", name, nearest));
  }

 private:
  const CommandSyntax* command_;
  std::vector<std::string_view> names_;
};

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
  } else if (name == "help") {
    const bool all = arguments.size() > 1 && arguments[1] == "all";
    if (all) option.value = {"all"};
    used = all ? 2 : 1;
  } else if (is_switch(name)) {
    static constexpr std::string_view words[] = {"true", "false", "True", "False"};
    const bool has_value = arguments.size() > 1 && std::ranges::find(words, arguments[1]) != std::end(words);
    option.value = {has_value ? arguments[1] : "true"};
    used = has_value ? 2 : 1;
  } else {
    const bool known = find_flag(name) != nullptr || find_tensorflow_nmt_flag(name) != nullptr;
    if (known && arguments.size() > 1 && arguments[1].starts_with("--")) {
      throw ddl::Error(ddl::ErrorCode::invalid_argument,
                       fmt::format("--{}: its value is missing before {}", name, printable(arguments[1])));
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

Settings read_flags(int argc, const char* const* argv, const Syntax& syntax, ParsedOptions& parsed) {
  po::options_description known;
  for (const std::string_view name : syntax.names()) {
    auto* value = po::value<std::string>();
    if (name == "help" || name == "version") value->implicit_value("");
    known.add_options()(name == "help" ? "help,h" : std::string(name).c_str(), value);
  }
  Settings settings;
  try {
    for (const po::option& option : split(argc, argv, known).options) {
      const std::string& name = option.string_key;
      if (name.empty()) {
        if (!syntax.takes_arguments()) {
          syntax.fail(
              fmt::format("unexpected argument '{}': flags start with --", printable(option.value.at(0))));
        }
        parsed.arguments.push_back(option.value.at(0));
      } else if (name == "help") {
        parsed.help = true;
        parsed.help_all = !option.value.empty() && option.value.front() == "all";
      } else if (name == "version") {
        parsed.version = true;
      } else {
        settings.push_back({name, option.value.at(0)});
      }
    }
  } catch (const po::unknown_option& error) {
    std::string name = error.get_option_name();
    name = name.substr(0, name.find('='));
    name.erase(0, name.find_first_not_of('-'));
    syntax.refuse(name);
  } catch (const po::error& error) {
    syntax.fail(printable(error.what()));
  }
  return settings;
}

const std::string* last_value(const Settings& settings, std::string_view name) {
  const auto found = std::find_if(settings.rbegin(), settings.rend(),
                                  [&](const Setting& setting) { return setting.name == name; });
  return found == settings.rend() ? nullptr : &found->value;
}

/// The settings in the file that --config or --hparams_path names.
Settings settings_in_file(const Settings& flags) {
  const std::string* path = last_value(flags, "config");
  const std::string* same = last_value(flags, "hparams_path");
  if (path != nullptr && same != nullptr) {
    throw ddl::Error(ddl::ErrorCode::invalid_argument,
                     fmt::format("--config={} and --hparams_path={}: both name the file of options; give one",
                                 printable(*path), printable(*same)));
  }
  const std::string* given = path != nullptr ? path : same;
  if (given == nullptr || given->empty()) return {};
  return options_in_file(*given, path != nullptr ? "config" : "hparams_path");
}

/// Says also in which line of a file a value that is not allowed stands.
void assign(const Flag& flag, const Setting& setting, Options& options) try {
  assign(flag, setting.value, options);
} catch (const ddl::Error& error) {
  if (setting.where.empty()) throw;
  throw ddl::Error(error.code(), fmt::format("{}: {}", setting.where, error.what()));
}

/// Gives settings that have still their defaults the values that the optimiser was published with.
template <typename IsSet>
void apply_published_settings(Options& options, const IsSet& is_set) {
  const auto imply = [&](std::string_view name, double Options::*member, double value) {
    if (!is_set(name) && options.*member == Options().*member) options.*member = value;
  };
  switch (options.optimizer) {
    case OptimizerKind::adamw:
      return imply("weight_decay", &Options::weight_decay, 0.01);
    case OptimizerKind::lamb:
      imply("adam_epsilon", &Options::adam_epsilon, 1e-6);
      return imply("weight_decay", &Options::weight_decay, 0.01);
    case OptimizerKind::novograd:
      imply("adam_beta1", &Options::adam_beta1, 0.95);
      return imply("adam_beta2", &Options::adam_beta2, 0.98);
    default:
      return;
  }
}

void apply_consequences(Options& options, const std::vector<std::string>& explicitly_set) {
  const auto is_set = [&](std::string_view name) {
    return std::ranges::find(explicitly_set, name) != explicitly_set.end();
  };
  if (is_set("inference_input_file") && !is_set("infer")) options.infer = true;
  if (!is_set("infer_mode")) {
    // Of a checkpoint's mode and what this run's flags mean, the latter counts.
    if (is_set("beam_width") && !is_set("sampling_temperature")) options.sampling_temperature = 0;
    if (is_set("sampling_temperature") && !is_set("beam_width")) options.beam_width = 0;
    options.infer_mode = options.beam_width > 0             ? InferMode::beam_search
                         : options.sampling_temperature > 0 ? InferMode::sample
                                                            : InferMode::greedy;
  } else {
    // What is set beside a mode that does not use it is refused later.
    if (options.infer_mode != InferMode::beam_search && !is_set("beam_width")) options.beam_width = 0;
    if (options.infer_mode != InferMode::sample && !is_set("sampling_temperature"))
      options.sampling_temperature = 0;
  }
  if ((is_set("train_prefix") || is_set("vocab_prefix")) && !is_set("builtin_corpus")) {
    options.builtin_corpus = 0;
  }
  if (is_set("optimizer")) apply_published_settings(options, is_set);
  if (is_set("decay_factor") && options.decay_factor != 1 && !is_set("decay_scheme") &&
      options.decay_scheme == DecayScheme::none) {
    options.decay_scheme = DecayScheme::exp;
  }
  if (options.encoder_layers() != options.decoder_layers() && !is_set("pass_hidden_state")) {
    options.pass_hidden_state = false;
  }
}

/// Checks the flags of tensorflow/nmt that have no member in Options, and says what is to be known of them.
void check_tensorflow_nmt_flags(const Settings& settings, ParsedOptions& parsed) {
  std::string without_effect;
  for (const TensorflowNmtFlag& flag : tensorflow_nmt_flags()) {
    const std::string* value = last_value(settings, flag.name);
    if (value == nullptr) continue;
    if (check_tensorflow_nmt_flag(flag, *value)) continue;
    without_effect += fmt::format("{}--{}={} ({})", without_effect.empty() ? "" : ", ", flag.name,
                                  printable(*value), flag.instead);
  }
  if (!without_effect.empty()) {
    parsed.notices.push_back("flags of tensorflow/nmt that change nothing here: " + without_effect);
  }
  const std::string* gpus = last_value(settings, "num_gpus");
  if (gpus == nullptr) return;
  const bool on_gpu = parsed.options.device == DeviceKind::cuda;
  if (*gpus == "0" && on_gpu) {
    throw ddl::Error(ddl::ErrorCode::invalid_argument,
                     "--num_gpus=0 and --device=cuda: choose one; --device says where each rank computes");
  }
  if (*gpus != "0" && !on_gpu) {
    parsed.notices.push_back(
        fmt::format("--num_gpus={}: this run computes on the CPU; with --device=cuda each rank takes a GPU",
                    printable(*gpus)));
  }
}

}  // namespace

ParsedOptions parse_options(int argc, const char* const* argv, const CommandSyntax* command) {
  ParsedOptions parsed;
  const Settings flags = read_flags(argc, argv, Syntax(command), parsed);
  if (parsed.help || parsed.version) return parsed;
  Settings settings = settings_in_file(flags);
  settings.insert(settings.end(), flags.begin(), flags.end());

  const std::string* preset = last_value(settings, "preset");
  if (preset != nullptr && !preset->empty()) apply_preset(*preset, parsed.options);
  for (const Setting& setting : settings) {
    const Flag* flag = find_flag(setting.name);
    if (flag == nullptr) continue;  // one of tensorflow/nmt
    assign(*flag, setting, parsed.options);
    if (std::ranges::find(parsed.explicitly_set, setting.name) == parsed.explicitly_set.end()) {
      parsed.explicitly_set.push_back(setting.name);
    }
  }
  check_tensorflow_nmt_flags(settings, parsed);
  apply_consequences(parsed.options, parsed.explicitly_set);
  const Options& options = parsed.options;
  const bool may_go_on =
      !options.describe && !options.dump_config && !(options.out_dir.empty() && options.ckpt.empty());
  may_go_on || command != nullptr ? validate_values(options) : validate(options);
  return parsed;
}

Options with_explicit_options(Options saved, const ParsedOptions& parsed) {
  const bool is_given = std::ranges::count(parsed.explicitly_set, "override_loaded_hparams") > 0;
  if (parsed.options.override_loaded_hparams) return parsed.options;
  if (!is_given && !parsed.options.preset.empty()) apply_preset(parsed.options.preset, saved);
  std::vector<std::string> used;
  for (const std::string& name : parsed.explicitly_set) {
    const Flag& flag = *find_flag(name);
    if (is_given && !flag.this_run && flag.group != FlagGroup::translating) continue;
    copy_value(flag, parsed.options, saved);
    used.push_back(name);
  }
  for (const Flag& flag : all_flags()) {
    if (flag.this_run) copy_value(flag, parsed.options, saved);
  }
  apply_consequences(saved, used);
  return saved;
}

std::vector<std::string> changes_from_saved(const Options& saved, const Options& run,
                                            const ParsedOptions& parsed) {
  const auto shown = [](const std::string& value) { return value.empty() ? std::string("\"\"") : value; };
  std::vector<std::string> lines;
  for (const Flag& flag : all_flags()) {
    if (flag.this_run) continue;
    const std::string before = value_text(flag, saved);
    const std::string now = value_text(flag, run);
    const std::string asked = value_text(flag, parsed.options);
    if (before != now) {
      lines.push_back(fmt::format("--{}: {}, the checkpoint had {}", flag.name, shown(now), shown(before)));
    } else if (run.mini_batch_fit && flag.name.starts_with("batch_")) {
      continue;  // it was found
    } else if (asked != now && std::ranges::count(parsed.explicitly_set, flag.name) > 0) {
      lines.push_back(fmt::format("--{}: {} as in the checkpoint, not {} (--override_loaded_hparams=false)",
                                  flag.name, shown(now), shown(asked)));
    }
  }
  return lines;
}

std::vector<std::size_t> inference_indices(const std::string& list, std::size_t lines) {
  std::vector<std::size_t> indices;
  if (list.empty()) {
    for (std::size_t i = 0; i < lines; ++i) indices.push_back(i);
    return indices;
  }
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    std::size_t index = 0;
    const auto [rest, error] = std::from_chars(list.data() + begin, list.data() + end, index);
    if (error != std::errc() || rest != list.data() + end || index >= lines) {
      throw ddl::Error(
          ddl::ErrorCode::invalid_argument,
          fmt::format("--inference_list={}: \"{}\" is no number of a line; expected numbers from "
                      "0 to {}, separated by commas",
                      printable(list), printable(list.substr(begin, end - begin)),
                      lines == 0 ? 0 : lines - 1));
    }
    indices.push_back(index);
    begin = end + 1;
  }
  return indices;
}

}  // namespace nmt
