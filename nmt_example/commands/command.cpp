#include "nmt_example/commands/command.hpp"

#include <fmt/format.h>

#include <vector>

#include "ddl/error.hpp"
#include "nmt_example/options/nearest_name.hpp"

namespace nmt {

std::span<const Command> commands() {
  static const std::vector<Command> table = {train_command(),    translate_command(), score_command(),
                                             evaluate_command(), average_command(),   tune_command(),
                                             report_command(),   export_command()};
  return table;
}

const Command& find_command(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Command& command : commands()) {
    if (command.syntax.name == name) return command;
    names.push_back(command.syntax.name);
  }
  throw ddl::Error(ddl::ErrorCode::invalid_argument,
                   fmt::format("unknown command {}; did you mean {}? ddl_nmt --help lists all commands", name,
                               nearest_name(name, names)));
}

std::string help_of_program(bool all) {
  std::vector<const CommandSyntax*> syntaxes;
  for (const Command& command : commands()) syntaxes.push_back(&command.syntax);
  return help_text(syntaxes, all);
}

}  // namespace nmt
