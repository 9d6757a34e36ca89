#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nmt {

/// What the command line of a subcommand of ddl_nmt may hold, and what its --help says.
struct CommandSyntax {
  std::string_view name;
  std::string_view purpose;             ///< One line without a full stop.
  std::string_view example;             ///< Indented by two blanks; may have several lines.
  std::vector<std::string_view> flags;  ///< Those that it takes, of the table of flags.
  std::string_view arguments = {};      ///< What it takes besides flags, e.g. "CKPT..."; empty: nothing.
};

/// The flags of a command line without a subcommand: all but those of single commands.
std::vector<std::string_view> flags_without_command();

/// The text of --help: flags by what they are for, each with its default and the values that it allows.
/// `all`: also the rare ones.
std::string help_text(const CommandSyntax& command, bool all);
/// The text of --help without a command, which begins with the list of commands. `all`: also the rare flags,
/// and those of tensorflow/nmt that change nothing here.
std::string help_text(std::span<const CommandSyntax* const> commands, bool all);

}  // namespace nmt
