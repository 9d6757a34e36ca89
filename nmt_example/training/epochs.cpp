#include "nmt_example/training/epochs.hpp"

#include <algorithm>
#include <cmath>

namespace nmt {
namespace {

void set(Length& length, double steps) {
  if (length.unit() != LengthUnit::epochs) return;
  const std::int64_t least = length.amount() > 0 ? 1 : 0;
  length.set_steps(std::max<std::int64_t>(least, std::llround(steps)));
}

}  // namespace

void Epochs::go_on(std::uint64_t now, std::uint64_t steps) {
  if (steps == steps_each) return;
  if (steps_each == 0) steps_each = steps;  // of an older version: as if it had been so from the start
  done += static_cast<double>(now - step) / static_cast<double>(steps_each);
  step = now;
  steps_each = steps;
}

std::int64_t Epochs::steps_after(double epochs) const {
  const double steps = epochs < done
                           ? static_cast<double>(step) * epochs / done
                           : static_cast<double>(step) + (epochs - done) * static_cast<double>(steps_each);
  return std::llround(steps);
}

void set_steps_of_epochs(Options& options, const Epochs& epochs, int ranks) {
  const auto position = [&](Length& length, int factor) {
    set(length, static_cast<double>(epochs.steps_after(length.amount())) * factor);
  };
  const auto period = [&](Length& length, int factor) {
    set(length, length.amount() * static_cast<double>(epochs.steps_each) * factor);
  };
  position(options.num_train_steps, 1);
  for (Length* every : {&options.steps_per_stats, &options.steps_per_eval, &options.steps_per_external_eval,
                        &options.drift_check_steps}) {
    period(*every, 1);
  }
  const int workers = options.lr_schedule_unit == ddl::ScheduleUnit::samples ? ranks : 1;
  position(options.warmup_steps, workers);
  position(options.start_decay_step, workers);
  period(options.decay_steps, workers);
  for (Length& boundary : options.decay_boundaries) position(boundary, workers);
}

}  // namespace nmt
