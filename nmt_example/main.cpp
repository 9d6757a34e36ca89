#include <fmt/format.h>

#include "ddl/context.hpp"
#include "ddl/log.hpp"
#include "nmt_example/commands/command.hpp"

namespace {

int run(ddl::Context& context, int argc, char** argv) {
  const nmt::Command* command = nullptr;
  nmt::ParsedOptions parsed;
  context.on_all_ranks("read the command line", [&] {
    if (argc > 1 && argv[1][0] != '-') {
      command = &nmt::find_command(argv[1]);
      parsed = nmt::parse_options(argc - 1, argv + 1, &command->syntax);
    } else {
      parsed = nmt::parse_options(argc, argv);
    }
  });
  for (const std::string& notice : parsed.notices) {
    if (context.is_root()) context.log().notice(notice);
  }
  if (parsed.help) {
    context.root_only("help", [&] {
      fmt::print("{}", command != nullptr ? nmt::help_text(command->syntax, parsed.help_all)
                                          : nmt::help_of_program(parsed.help_all));
    });
  } else if (parsed.version) {
    context.root_only("version", [] { fmt::print("ddl_nmt {}\n", DDL_VERSION); });
  } else {
    const nmt::Options& options = parsed.options;
    const bool translates = options.infer && !options.describe && !options.dump_config;
    if (command == nullptr) command = &nmt::find_command(translates ? "translate" : "train");
    command->run(context, std::move(parsed));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return ddl::Context::run_from_environment([&](ddl::Context& context) { return run(context, argc, argv); });
}
