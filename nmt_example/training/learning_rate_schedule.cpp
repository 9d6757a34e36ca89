#include "nmt_example/training/learning_rate_schedule.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "ddl/error.hpp"

namespace nmt {
namespace {

double warmup_factor(const Options& options, std::int64_t step) {
  const std::int64_t warmup = options.warmup_steps;
  if (step >= warmup) return 1.0;
  const auto w = static_cast<double>(warmup);
  if (options.warmup_scheme == WarmupScheme::linear) return static_cast<double>(step + 1) / w;
  return std::pow(0.01, static_cast<double>(warmup - step) / w);
}

double halved(std::int64_t step, std::int64_t start, std::int64_t steps, std::int64_t times) {
  if (step < start) return 1.0;
  const std::int64_t interval = std::max<std::int64_t>(1, (steps - start) / times);
  return std::pow(0.5, static_cast<double>((step - start) / interval));
}

double cosine(std::int64_t step, std::int64_t start, std::int64_t steps) {
  if (step < start) return 1.0;
  if (step >= steps) return 0.0;
  const double done = static_cast<double>(step - start) / static_cast<double>(steps - start);
  return 0.5 * (1.0 + std::cos(std::numbers::pi * done));
}

double decay_factor(const Options& options, std::int64_t step) {
  const std::int64_t steps = options.num_train_steps;
  switch (options.decay_scheme) {
    case DecayScheme::none:
      return 1.0;
    case DecayScheme::luong5:
      return halved(step, steps / 2, steps, 5);
    case DecayScheme::luong10:
      return halved(step, steps / 2, steps, 10);
    case DecayScheme::luong234:
      return halved(step, steps * 2 / 3, steps, 4);
    case DecayScheme::cosine:
      return cosine(step, options.warmup_steps, steps);
  }
  return 1.0;
}

}  // namespace

Options single_worker_schedule(Options options, int ranks) {
  if (options.lr_schedule_unit != ddl::ScheduleUnit::samples) return options;
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const std::int64_t steps = options.num_train_steps;
  options.num_train_steps = steps > most / ranks ? most : steps * ranks;
  if (options.decay_scheme == DecayScheme::cosine && steps > 0 &&
      options.warmup_steps >= options.num_train_steps) {
    throw ddl::Error(
        ddl::ErrorCode::invalid_argument,
        fmt::format("--warmup_steps={}: must be below {} with --decay_scheme=cosine and "
                    "--lr_schedule_unit=samples: --num_train_steps={} times {} rank{}",
                    options.warmup_steps, options.num_train_steps, steps, ranks, ranks == 1 ? "" : "s"));
  }
  return options;
}

std::uint64_t warmup_updates(const Options& options, int ranks) {
  const auto steps = static_cast<std::uint64_t>(options.warmup_steps);
  if (options.lr_schedule_unit != ddl::ScheduleUnit::samples) return steps;
  const auto n = static_cast<std::uint64_t>(ranks);
  return steps / n + (steps % n != 0 ? 1 : 0);
}

double learning_rate_at(const Options& options, std::uint64_t step) {
  const auto s = static_cast<std::int64_t>(step);
  return options.learning_rate * warmup_factor(options, s) * decay_factor(options, s);
}

}  // namespace nmt
