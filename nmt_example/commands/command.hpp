#pragma once

#include <span>
#include <string_view>

#include "ddl/context.hpp"
#include "nmt_example/options/command_syntax.hpp"
#include "nmt_example/options/options.hpp"

namespace nmt {

/// A subcommand of ddl_nmt. Each has its file in this folder, and its line in the table in command.cpp.
struct Command {
  CommandSyntax syntax;
  /// Collective. The values of the flags are in range; whether they go together is for the command to check.
  void (*run)(ddl::Context& context, ParsedOptions parsed);
};

Command train_command();
Command translate_command();
Command score_command();
Command evaluate_command();
Command average_command();
Command tune_command();
Command report_command();
Command export_command();

/// All commands, in the order of --help.
std::span<const Command> commands();
/// Throws `invalid_argument`, with the nearest name, if there is no command of that name.
const Command& find_command(std::string_view name);

/// The text of `ddl_nmt --help`.
std::string help_of_program(bool all);

}  // namespace nmt
