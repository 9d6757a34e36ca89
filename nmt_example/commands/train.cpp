#include <fmt/format.h>

#include "nmt_example/commands/command.hpp"
#include "nmt_example/model/parameter_layout.hpp"
#include "nmt_example/options/flag_table.hpp"
#include "nmt_example/training/setup.hpp"
#include "nmt_example/training/trainer.hpp"

namespace nmt {
namespace {

/// What trains, and what translations are made with for scores.
std::vector<std::string_view> train_flags() {
  std::vector<std::string_view> names;
  for (const Flag& flag : all_flags()) {
    const bool only_translates = flag.group == FlagGroup::translating && flag.this_run;
    if (flag.group != FlagGroup::command && !only_translates) names.push_back(flag.name);
  }
  return names;
}

void describe_or_train(ddl::Context& context, ParsedOptions parsed) {
  const Options& options = parsed.options;
  if (!options.describe && !options.dump_config) return train(context, parsed);
  context.root_only("print the options", [&] {
    validate(options);
    if (options.dump_config) return fmt::print("{}\n", config_of(options));
    const auto size = static_cast<std::size_t>(options.vocab_size);
    fmt::print("{}\n{}", describe(parameter_layout(model_shape(options, size, size))),
               describe_options(options));
  });
}

}  // namespace

Command train_command() {
  return {
      {.name = "train",
       .purpose = "Trains a translator, or goes on with the run in --out_dir",
       .example = "  mpirun -np 2 ddl_nmt train --preset=multi30k --out_dir=model \\\n"
                  "    --train_prefix=DATA/train --dev_prefix=DATA/val --test_prefix=DATA/test_2016_flickr",
       .flags = train_flags()},
      describe_or_train};
}

}  // namespace nmt
