#pragma once

#include <cstdint>

#include "nmt_example/options/options.hpp"

namespace nmt {

/// Where epochs end, in steps. A run that goes on with another global batch has another number of steps an
/// epoch from there on.
struct Epochs {
  std::uint64_t step = 0;        ///< The step from which an epoch has `steps_each`.
  double done = 0;               ///< Epochs before `step`.
  std::uint64_t steps_each = 0;  ///< 0: unknown.

  /// Steps after `now` have `steps` an epoch. The same number as before changes nothing, so that a resumed
  /// run ends where it would have ended.
  void go_on(std::uint64_t now, std::uint64_t steps);
  /// The number of steps after which so many epochs are done, rounded.
  [[nodiscard]] std::int64_t steps_after(double epochs) const;
};

/// Gives all lengths in epochs their numbers of steps: positions (num_train_steps, warmup_steps, ...) and
/// periods, the latter at least 1. With --lr_schedule_unit=samples, those of warm-up and decay are one
/// worker's: `ranks` times the job's.
void set_steps_of_epochs(Options& options, const Epochs& epochs, int ranks);

}  // namespace nmt
