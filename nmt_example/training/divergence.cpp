#include "nmt_example/training/divergence.hpp"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "ddl/error.hpp"

namespace nmt {
namespace {

constexpr int most_rollbacks = 5;

[[noreturn]] void give_up(const std::string& diverged, const std::string& what) {
  throw ddl::Error(ddl::ErrorCode::invalid_argument, fmt::format("{}. {}", diverged, what)).as_agreed();
}

}  // namespace

double rate_after(int rollbacks) { return std::ldexp(1.0, -rollbacks); }

void check_may_roll_back(const Options& options, const RunState& state, const std::string& diverged) {
  if (options.on_divergence != OnDivergence::rollback) {
    give_up(diverged,
            "Lower --learning_rate, or raise --warmup_steps, or let --on_divergence=rollback do that.");
  }
  if (state.rollbacks == most_rollbacks) {
    give_up(diverged, fmt::format("It went back to a checkpoint {} times before. Lower --learning_rate.",
                                  most_rollbacks));
  }
}

SavedRun run_before_divergence(ddl::Context& context, const Options& options, ddl::Checkpoint& checkpoint,
                               const RunState& state, const std::string& diverged) {
  auto saved = newest_run(context, checkpoint);
  if (saved && saved->state().step == state.step) {
    context.root_only("put a checkpoint aside", [&] {
      const std::filesystem::path directory = options.out_dir;
      const std::filesystem::path aside = directory / fmt::format("diverged-{:010}", state.step);
      std::filesystem::remove_all(aside);
      std::filesystem::rename(saved->path(), aside);
    });
    saved = newest_run(context, checkpoint);
  }
  if (!saved) {
    give_up(diverged,
            fmt::format("There is no good checkpoint in {} to go back to. Lower --learning_rate, or save "
                        "more often with --steps_per_eval.",
                        options.out_dir));
  }
  return std::move(*saved);
}

}  // namespace nmt
