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

/// The share of the steps from `start` to `steps` that is done, from 0 to 1.
double share_done(std::int64_t step, std::int64_t start, std::int64_t steps) {
  if (step < start) return 0.0;
  if (step >= steps) return 1.0;
  return static_cast<double>(step - start) / static_cast<double>(steps - start);
}

double cosine(double done) { return 0.5 * (1.0 + std::cos(std::numbers::pi * done)); }

double exponential(const Options& options, std::int64_t step) {
  if (step < options.start_decay_step) return 1.0;
  const std::int64_t times = (step - options.start_decay_step) / options.decay_steps;
  return std::pow(options.decay_factor, static_cast<double>(times));
}

double inverse_root(std::int64_t step, std::int64_t warmup) {
  if (step < warmup) return 1.0;
  return std::sqrt(static_cast<double>(std::max<std::int64_t>(warmup, 1)) / static_cast<double>(step + 1));
}

double piecewise(const Options& options, std::int64_t step) {
  const auto& boundaries = options.decay_boundaries;
  const auto passed =
      std::ranges::upper_bound(boundaries, step, {}, [](std::int64_t b) { return b; }) - boundaries.begin();
  return passed == 0 ? 1.0 : options.decay_rates[static_cast<std::size_t>(passed - 1)];
}

double noam(const Options& options, std::int64_t step) {
  const auto s = static_cast<double>(step + 1);
  const auto warmup = static_cast<double>(options.warmup_steps);
  return std::min(1 / std::sqrt(s), s / (warmup * std::sqrt(warmup))) / std::sqrt(options.num_units);
}

double decayed_rate(const Options& options, std::int64_t step) {
  const std::int64_t steps = options.num_train_steps;
  const double rate = options.learning_rate;
  const auto down_to_end = [&](double share) {
    return options.end_learning_rate + (rate - options.end_learning_rate) * share;
  };
  switch (options.decay_scheme) {
    case DecayScheme::none:
      return rate;
    case DecayScheme::luong5:
      return rate * halved(step, steps / 2, steps, 5);
    case DecayScheme::luong10:
      return rate * halved(step, steps / 2, steps, 10);
    case DecayScheme::luong234:
      return rate * halved(step, steps * 2 / 3, steps, 4);
    case DecayScheme::cosine:
      return down_to_end(cosine(share_done(step, options.warmup_steps, steps)));
    case DecayScheme::exp:
      return rate * exponential(options, step);
    case DecayScheme::poly: {
      const std::int64_t start = std::max(options.start_decay_step, options.warmup_steps);
      return down_to_end(std::pow(1.0 - share_done(step, start, steps), options.decay_power));
    }
    case DecayScheme::inverse_sqrt:
      return rate * inverse_root(step, options.warmup_steps);
    case DecayScheme::piecewise:
      return rate * piecewise(options, step);
    case DecayScheme::noam:
      return rate * noam(options, step);
  }
  return rate;
}

}  // namespace

Options single_worker_schedule(Options options, int ranks) {
  if (options.lr_schedule_unit != ddl::ScheduleUnit::samples) return options;
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const std::int64_t steps = options.num_train_steps;
  options.num_train_steps = steps > most / ranks ? most : steps * ranks;
  const bool ends = options.decay_scheme == DecayScheme::cosine || options.decay_scheme == DecayScheme::poly;
  if (ends && steps > 0 && options.warmup_steps >= options.num_train_steps) {
    throw ddl::Error(ddl::ErrorCode::invalid_argument,
                     fmt::format("--warmup_steps={}: must be below {} with --decay_scheme={} and "
                                 "--lr_schedule_unit=samples: --num_train_steps={} times {} rank{}",
                                 options.warmup_steps.text(), options.num_train_steps.text(),
                                 name_of(options.decay_scheme), steps, ranks, ranks == 1 ? "" : "s"));
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
  const bool warms_up_itself = options.decay_scheme == DecayScheme::noam;
  return decayed_rate(options, s) * (warms_up_itself ? 1.0 : warmup_factor(options, s));
}

}  // namespace nmt
