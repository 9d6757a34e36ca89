#pragma once

#include <cstdint>

#include "nmt_example/options/options.hpp"

namespace nmt {

/// With --lr_schedule_unit=samples, the learning rate's schedule counts updates of one worker: returns the
/// options with `ranks` times the steps to train, so that the schedule ends with the job's num_train_steps.
/// Warm-up steps already are one worker's. With --lr_schedule_unit=updates, returns the options unchanged.
/// Throws `invalid_argument` if warm-up leaves no steps for the cosine.
Options single_worker_schedule(Options options, int ranks);

/// The job's updates during warm-up.
std::uint64_t warmup_updates(const Options& options, int ranks);

/// The learning rate of a step, counted from 0: `learning_rate` times the factors of warm-up and decay.
/// Depends only on its arguments, so a resumed run needs no state for it. W = warmup_steps, N =
/// num_train_steps, s = step:
/// - warm-up, while s < W: t2t 0.01^((W-s)/W) (tensorflow/nmt); linear (s+1)/W;
/// - decay luong5, luong10 (from N/2) and luong234 (from 2N/3; tensorflow/nmt): halved every
///   int((N-start)/times) steps, times = 5, 10, 4;
/// - decay cosine: (1 + cos(pi (s-W)/(N-W)))/2 after warm-up, 0 from N on (Loshchilov and Hutter 2017,
///   without restarts).
double learning_rate_at(const Options& options, std::uint64_t step);

}  // namespace nmt
