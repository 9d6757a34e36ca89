#include "ddl/training_state.hpp"

#include <fmt/format.h>

#include <utility>

#include "ddl/log.hpp"

namespace ddl {
namespace {

constexpr const char* model_group = "model";
constexpr const char* reducer_group = "reducer";
constexpr const char* reducer_file = "reducer.json";
constexpr const char* sampler_file = "sampler.json";

void restore_reducer(const SavedCheckpoint& saved, GradientReducer& reducer) {
  try {
    reducer.restore(saved.file(reducer_file));
    saved.restore(reducer_group, {.per_rank = reducer.residuals()});
  } catch (const Error& error) {
    if (error.code() != ErrorCode::mismatch) throw;
    saved.context().log().notice(
        fmt::format("the gradient reducer is not restored from {}: {}", saved.path().string(), error.what()));
  }
}

}  // namespace

CheckpointGroup group_of(const Model& model) {
  CheckpointGroup group;
  for (const Parameter& parameter : model) {
    std::vector<std::int64_t> shape = parameter.shape;
    if (shape.empty()) shape = {static_cast<std::int64_t>(parameter.values.size())};
    group.whole.push_back(
        {parameter.name, parameter.values.type(), std::move(shape), parameter.values.bytes()});
  }
  return group;
}

CheckpointContents contents_of(const TrainingState& training) {
  CheckpointContents contents{.groups = {{model_group, group_of(training.model)}}};
  if (training.reducer != nullptr) {
    contents.files[reducer_file] = training.reducer->state();
    contents.groups[reducer_group] = {.per_rank = training.reducer->residuals()};
  }
  if (training.sampler != nullptr) contents.files[sampler_file] = training.sampler->state();
  return contents;
}

void restore(const SavedCheckpoint& saved, const TrainingState& training) {
  saved.restore(model_group, group_of(training.model));
  if (training.sampler != nullptr) {
    const std::string text = saved.file(sampler_file);
    saved.context().on_all_ranks("restore the sampler", [&] { training.sampler->restore(text); });
  }
  if (training.reducer != nullptr) restore_reducer(saved, *training.reducer);
}

}  // namespace ddl
