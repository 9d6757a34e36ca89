#pragma once

#include <string>

#include "ddl/checkpoint.hpp"
#include "ddl/gradient_reducer.hpp"
#include "ddl/parameter.hpp"
#include "ddl/sharded_sampler.hpp"

namespace ddl {

/// What a run needs to go on from a checkpoint, so that its next steps have the bits of a run that never
/// stopped: the parameters, what the reducer learned and owes, and where the sampler stands. References: all
/// must outlive it.
///
///     const ddl::TrainingState training{model, &reducer, &sampler};
///     if (const auto saved = checkpoint.newest()) ddl::restore(*saved, training);
///     ...
///     checkpoint.save(step, ddl::contents_of(training));
struct TrainingState {
  const Model& model;                  ///< In the memory of the host. Names must differ.
  GradientReducer* reducer = nullptr;  ///< Null: not saved.
  ShardedSampler* sampler = nullptr;   ///< Null: not saved.
};

/// Views of the state, to be saved now; more groups, files and a state of the program's own may be added.
/// Uses the groups "model" and "reducer", and the files "reducer.json" and "sampler.json". Not collective.
[[nodiscard]] CheckpointContents contents_of(const TrainingState& training);

/// Fills the state from a checkpoint with `contents_of` it, saved by any number of ranks. Where the reducer's
/// part is of another number of ranks, or of other gradients or options, the reducer starts anew, and the log
/// says so. Collective. Throws, agreed, as `SavedCheckpoint::restore` and `ShardedSampler::restore`; the
/// state is undefined then.
void restore(const SavedCheckpoint& saved, const TrainingState& training);

}  // namespace ddl
