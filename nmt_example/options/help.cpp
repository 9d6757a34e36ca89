#include <fmt/core.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <sstream>

#include "nmt_example/options/command_syntax.hpp"
#include "nmt_example/options/flag_table.hpp"
#include "nmt_example/options/presets.hpp"
#include "nmt_example/options/tensorflow_nmt_flags.hpp"

namespace nmt {
namespace {

namespace po = boost::program_options;

constexpr FlagGroup groups[] = {FlagGroup::general, FlagGroup::command,    FlagGroup::data,
                                FlagGroup::model,   FlagGroup::training,   FlagGroup::distribution,
                                FlagGroup::saving,  FlagGroup::translating};

std::string help_of(const Flag& flag) {
  std::string text(flag.help);
  const std::string allowed = flag.allowed();
  if (!allowed.empty()) text += fmt::format(" [{}]", allowed);
  const std::string value = value_text(flag, Options());
  return text + fmt::format(" (default {})", value.empty() ? "\"\"" : value);
}

po::options_description described(FlagGroup group, std::span<const std::string_view> names, bool all) {
  po::options_description description(std::string(title(group)), 110, 70);
  if (group == FlagGroup::general) {
    description.add_options()("help,h", po::value<std::string>()->implicit_value("")->value_name("[all]"),
                              "This text; --help=all: also the flags that are rarely needed")("version",
                                                                                              "The version");
  }
  for (const Flag& flag : all_flags()) {
    if (flag.group != group || (flag.rare && !all) || std::ranges::count(names, flag.name) == 0) continue;
    auto* value = po::value<std::string>()->value_name(flag.is_switch() ? "[BOOL]" : "VALUE");
    description.add_options()(std::string(flag.name).c_str(), value, help_of(flag).c_str());
  }
  return description;
}

/// Those of the flags of these names that are to be shown, by group.
std::string described(std::span<const std::string_view> names, bool all) {
  std::ostringstream text;
  for (const FlagGroup group : groups) {
    const po::options_description description = described(group, names, all);
    if (!description.options().empty()) text << description << '\n';
  }
  if (!all) text << "--help=all lists the flags that are rarely needed, too.\n";
  return text.str();
}

std::string units_and_presets() {
  std::string text =
      "\nWhat counts steps also takes updates, which are steps (500u, 10ku, 1Mu), and epochs (5e, 0.5e); the "
      "end "
      "of\ntraining (num_train_steps) also a time (2h, 30m, 90s) or words of the target text, with the "
      "sentences' ends\n(500kw, 50Mw).\n\nPresets:\n";
  for (const Preset& preset : presets()) text += fmt::format("  {:<15} {}\n", preset.name, preset.help);
  return text;
}

}  // namespace

std::string help_text(const CommandSyntax& command, bool all) {
  std::string text = fmt::format(
      "Usage: [mpirun -np RANKS] ddl_nmt {} [--flag=value | --flag value | --switch] ...", command.name);
  if (!command.arguments.empty()) text += fmt::format(" {}", command.arguments);
  text += fmt::format("\n{}.\n\nExample:\n{}\n\n{}", command.purpose, command.example,
                      described(command.flags, all));
  return std::ranges::count(command.flags, "preset") == 0 ? text : text + units_and_presets();
}

std::string help_text(std::span<const CommandSyntax* const> commands, bool all) {
  std::string text =
      "Usage: [mpirun -np RANKS] ddl_nmt COMMAND [--flag=value | --flag value | --switch] ...\n"
      "Trains LSTM translators on all ranks together, and uses them.\n\nCommands:\n";
  for (const CommandSyntax* command : commands) {
    text += fmt::format("  {:<10} {}\n", command->name, command->purpose);
  }
  text +=
      "\nThe --help of each shows its flags and an example.\n"
      "Without a command, the flags are tensorflow/nmt's, by their names and meanings: ddl_nmt trains, or "
      "with\n"
      "--infer or --inference_input_file translates.\n\n" +
      described(flags_without_command(), all) + units_and_presets();
  if (!all) return text;
  text += "\nFlags of tensorflow/nmt that are accepted with the values of what is done here:\n";
  for (const TensorflowNmtFlag& flag : tensorflow_nmt_flags()) {
    text += fmt::format("  --{:<27} {}: {}\n", flag.name, flag.accepted_text(), flag.instead);
  }
  return text;
}

}  // namespace nmt
