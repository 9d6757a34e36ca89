#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "ddl/checkpoint.hpp"
#include "ddl/error.hpp"
#include "nmt_example/commands/command.hpp"
#include "nmt_example/options/flag_table.hpp"
#include "nmt_example/training/tuning.hpp"

namespace nmt {
namespace {

/// Of train, but for what belongs to a single run, or would end one early.
std::vector<std::string_view> tune_flags() {
  constexpr std::string_view not_taken[] = {"describe",       "dump_config", "override_loaded_hparams",
                                            "early_stopping", "patience",    "max_train_seconds",
                                            "log_jsonl",      "log_csv",     "log_dir",
                                            "profile",        "avg_ckpts",   "on_divergence"};
  std::vector<std::string_view> names = {"tune", "candidates", "rung_steps"};
  for (const std::string_view name : train_command().syntax.flags) {
    if (std::ranges::find(not_taken, name) == std::end(not_taken)) names.push_back(name);
  }
  return names;
}

void check_tune_flags(const Options& options) {
  const auto require = [](bool condition, const char* message) {
    if (!condition) throw ddl::Error(ddl::ErrorCode::invalid_argument, message);
  };
  require(!options.out_dir.empty(), "--out_dir is missing: give the directory where candidates are trained");
  require(!options.dev_prefix.empty() || options.builtin_corpus > 0,
          "--dev_prefix is missing: candidates are compared by the dev set's perplexity");
}

/// A line for each candidate, with its perplexities.
std::string table_of(const Tuning& tuning, std::size_t best) {
  std::string table = fmt::format("{:>16}", tuning.flag);
  for (std::size_t rung = 0; rung < tuning.rungs(); ++rung)
    table += fmt::format(" {:>12}", fmt::format("step {}", tuning.last_step(rung)));
  for (std::size_t i = 0; i < tuning.candidates.size(); ++i) {
    table += fmt::format("\n{:>16}", tuning.candidates[i].value);
    for (const double perplexity : tuning.candidates[i].perplexities)
      table +=
          fmt::format(" {:>12}", std::isfinite(perplexity) ? fmt::format("{:.2f}", perplexity) : "diverged");
    if (i == best) table += "  best";
  }
  return table + '\n';
}

void find_best(ddl::Context& context, ParsedOptions parsed) {
  context.on_all_ranks("check the flags", [&] { check_tune_flags(parsed.options); });
  const std::optional<Tuning> tuning = tune(context, parsed);
  if (!tuning) {
    context.root_only("say where it ended", [&] {
      fmt::print("ended by SIGTERM; the same command goes on in {}\n", parsed.options.out_dir);
    });
    return;
  }
  context.root_only("write the best options", [&] {
    const std::vector<std::size_t> left = tuning->taking_part(tuning->rungs());
    if (left.empty()) {
      throw ddl::Error(ddl::ErrorCode::invalid_argument,
                       fmt::format("training diverged with each value of --{}; try others, such as smaller "
                                   "ones, or a longer --warmup_steps",
                                   tuning->flag));
    }
    const std::size_t best = left.front();
    Options options = parsed.options;
    assign(*find_flag(tuning->flag), tuning->candidates[best].value, options);
    options.out_dir.clear();
    const auto path = std::filesystem::path(parsed.options.out_dir) / "best.json";
    ddl::write_file_atomically(path, config_of(options) + '\n');
    const std::string flag = fmt::format("{}={}", tuning->flag, tuning->candidates[best].value);
    fmt::print(
        "{}best: --{}\n"
        "to train with it:  ddl_nmt train --config={} --out_dir=model\n"
        "or on from there:  ddl_nmt train --config={} --out_dir={}/{}\n",
        table_of(*tuning, best), flag, path.string(), path.string(), parsed.options.out_dir, flag);
  });
}

}  // namespace

Command tune_command() {
  return {
      {.name = "tune",
       .purpose =
           "Finds a good learning rate, or another number, by short runs of which the better half goes on",
       .example =
           "  mpirun -np 2 ddl_nmt tune --preset=multi30k --out_dir=tuned --train_prefix=DATA/train \\\n"
           "    --dev_prefix=DATA/val --tune=learning_rate=0.0005:0.008:log --candidates=8\n"
           "  ddl_nmt tune --preset=quickstart --out_dir=tuned --tune=dropout=0.1,0.2,0.3,0.4",
       .flags = tune_flags()},
      find_best};
}

}  // namespace nmt
