#pragma once

#include <cstdint>

#include "nmt_example/options/options.hpp"

namespace nmt {

/// With --lr_schedule_unit=samples, the learning rate's schedule counts updates of one worker: returns the
/// options with `ranks` times the steps to train, so that the schedule ends with the job's num_train_steps.
/// Warm-up steps already are one worker's. With --lr_schedule_unit=updates, returns the options unchanged.
/// Throws `invalid_argument` if warm-up leaves no steps for a decay that ends with the training.
Options single_worker_schedule(Options options, int ranks);

/// The job's updates during warm-up.
std::uint64_t warmup_updates(const Options& options, int ranks);

/// The learning rate of a step, counted from 0: `learning_rate` with decay, times the factor of warm-up.
/// Depends only on its arguments, so a resumed run needs no state for it. W = warmup_steps, N =
/// num_train_steps, s = step:
/// - warm-up, while s < W: t2t 0.01^((W-s)/W) (tensorflow/nmt); linear (s+1)/W;
/// - decay luong5, luong10 (from N/2) and luong234 (from 2N/3; tensorflow/nmt): halved every
///   int((N-start)/times) steps, times = 5, 10, 4;
/// - decay cosine: (1 + cos(pi (s-W)/(N-W)))/2 after warm-up, 0 from N on (Loshchilov and Hutter 2017,
///   without restarts), of the way down to end_learning_rate;
/// - decay poly: ((N-s)/(N-b))^decay_power of the same way, from b = max(W, start_decay_step) to N
/// (TensorFlow's
///   polynomial_decay, as OpenSeq2Seq's poly_decay calls it);
/// - decay exp: decay_factor^int((s-start_decay_step)/decay_steps) (tensorflow/nmt's before it had schemes);
/// - decay inverse_sqrt: sqrt(max(W,1)/(s+1)) after warm-up (fairseq);
/// - decay piecewise: the rate in decay_rates of the last boundary that is not after s (OpenSeq2Seq);
/// - decay noam: min((s+1)^-0.5, (s+1) W^-1.5)/sqrt(num_units), with no other warm-up (Vaswani et al. 2017).
double learning_rate_at(const Options& options, std::uint64_t step);

}  // namespace nmt
