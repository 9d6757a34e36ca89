#pragma once

#include "ddl/checkpoint.hpp"
#include "ddl/gradient_reducer.hpp"
#include "ddl/parameter.hpp"
#include "ddl/sharded_sampler.hpp"

namespace ddl {

/// The state that a run needs to resume from a checkpoint with the same bits as a run that never stopped: the
/// parameters, the reducer's learned buckets and rounding errors, and the sampler's position. Holds
/// references; the objects must outlive it.
///
///     const ddl::TrainingState training{model, &reducer, &sampler};
///     if (const auto saved = checkpoint.newest()) ddl::restore(*saved, training);
///     ...
///     checkpoint.save(step, ddl::contents_of(training));
struct TrainingState {
  const Model& model;                  ///< In the host's memory; no two parameters have the same name.
  GradientReducer* reducer = nullptr;  ///< Null: not saved.
  ShardedSampler* sampler = nullptr;   ///< Null: not saved.
};

/// The contents of a checkpoint of `training`: views of its current state, to be saved before it changes.
/// Uses the groups "model" and "reducer" and the files "reducer.json" and "sampler.json"; the program may add
/// other groups and files, and a state of its own. Not collective.
[[nodiscard]] CheckpointContents contents_of(const TrainingState& training);

/// Fills `training` from a checkpoint that was saved with `contents_of`, by any number of ranks. If the
/// reducer had other gradients or options, it is not restored and starts anew; if its rounding errors are
/// those of another number of ranks, they start from zero. The log says so in both cases. Collective. Throws,
/// agreed, as `SavedCheckpoint::restore` and `ShardedSampler::restore` do; the state is then undefined.
void restore(const SavedCheckpoint& saved, const TrainingState& training);

}  // namespace ddl
