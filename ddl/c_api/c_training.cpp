#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddl/c_api/c_job.hpp"
#include "ddl/checkpoint.hpp"
#include "ddl/drift_check.hpp"
#include "ddl/gradient_reducer.hpp"
#include "ddl/gradients/reducer.hpp"
#include "ddl/learning_rate_scaling.hpp"
#include "ddl/sharded_sampler.hpp"
#include "ddl/timeline.hpp"
#include "ddl/training_state.hpp"

struct ddl_sampler {
  ddl::ShardedSampler sampler;
  ddl::ShardedBatch batch = {};
};
struct ddl_checkpoint {
  ddl::Checkpoint checkpoint;
  ddl_reducer* reducer = nullptr;
  ddl_sampler* sampler = nullptr;
};

namespace {

using namespace ddl;
using namespace ddl::c_api;

static_assert(DDL_GO_ON == static_cast<int>(CheckpointRequest::none) &&
              DDL_SAVE == static_cast<int>(CheckpointRequest::save) &&
              DDL_SAVE_AND_END == static_cast<int>(CheckpointRequest::save_and_end));
static_assert(DDL_SCALE_NONE == static_cast<int>(ScalingRule::none) &&
              DDL_SCALE_LINEAR == static_cast<int>(ScalingRule::linear) &&
              DDL_SCALE_SQUARE_ROOT == static_cast<int>(ScalingRule::square_root));

constexpr std::size_t none = static_cast<std::size_t>(-1);

std::string name_of(const char* name, int index) {
  return name == nullptr ? fmt::format("{}", index) : std::string(name);
}

template <typename T>
std::span<const T> list(const T* items, int count, const char* what) {
  if (count_of(count) != 0) require(items, what);
  return {items, count_of(count)};
}

/// `what`: the pointer's name, for messages.
Elements elements_of(void* data, const ddl_parameter& parameter, DataType type, const char* what) {
  if (parameter.count != 0) require(data, what);
  return {data, count_of(parameter.count), type};
}

/// `index`: the parameter's, for messages.
DataType gradient_type_of(const ddl_parameter& parameter, int index) {
  const int type = parameter.gradient_type;
  if (type == 0) return type_of(parameter.type, fmt::format("parameters[{}].type", index));
  if (type == DDL_F32 || type == DDL_F64 || type == DDL_F16 || type == DDL_BF16) {
    return static_cast<DataType>(type);
  }
  refuse(
      "parameters[{}].gradient_type: found {}, expected DDL_F32 (3), DDL_F64 (4), DDL_F16 (5), "
      "DDL_BF16 (6), or 0 for that of the parameter",
      index, type);
}

/// For each parameter the number of its gradient, or none.
std::vector<std::size_t> gradient_numbers(const Model& model) {
  std::vector<std::size_t> numbers;
  std::size_t gradients = 0;
  for (const Parameter& parameter : model) {
    numbers.push_back(parameter.gradient.data() == nullptr ? none : gradients++);
  }
  return numbers;
}

/// Lets a reducer's messages name functions and parameters as C programs do.
void name_as_in_c(ddl_reducer& reducer) {
  std::vector<std::size_t> numbers;
  for (std::size_t i = 0; i < reducer.gradients.size(); ++i) {
    if (reducer.gradients[i] != none) numbers.push_back(i);
  }
  ReducerAccess::state(reducer.reducer).names = {"ddl_reducer_", "DDL_GIVEN", std::move(numbers)};
}

GradientReducerOptions options_of(const ddl_reducer_options& given) {
  if (given.gradients != DDL_GRADIENT_SUMS && given.gradients != DDL_GRADIENT_MEANS) {
    refuse("options.gradients: found {}, expected DDL_GRADIENT_SUMS (1) or DDL_GRADIENT_MEANS (2)",
           given.gradients);
  }
  if (given.wire != 0 && given.wire != DDL_F16 && given.wire != DDL_BF16) {
    refuse("options.wire: found {}, expected 0, DDL_F16 (5) or DDL_BF16 (6)", given.wire);
  }
  return {.gradients = given.gradients == DDL_GRADIENT_SUMS ? GradientKind::sum : GradientKind::mean,
          .bucket_bytes = count_of(given.bucket_bytes),
          .overlap = given.after_backward == 0,
          .wire = given.wire == 0 ? DataType::f32 : static_cast<DataType>(given.wire),
          .leave_sums = given.leave_sums != 0,
          .micro_batches = given.micro_batches != 0,
          .narrow_sums = given.narrow_sums != 0};
}

TrainingState state_of(Job& job, const ddl_checkpoint& checkpoint, const Model& model) {
  return {.model = model,
          .reducer = checkpoint.reducer == nullptr ? nullptr : &job.handle(checkpoint.reducer).reducer,
          .sampler = checkpoint.sampler == nullptr ? nullptr : &job.handle(checkpoint.sampler).sampler};
}

/// This thread's open scopes of ddl_scope_begin, the innermost last.
std::vector<Timeline::Scope>& scopes() {
  thread_local std::vector<Timeline::Scope> open;
  return open;
}

}  // namespace

namespace ddl::c_api {

Model model_of(const ddl_parameter* parameters, int count, bool needs_values) {
  Model model;
  for (const ddl_parameter& each : list(parameters, count, "parameters")) {
    const int index = static_cast<int>(model.size());
    Parameter& parameter = model.emplace_back();
    parameter.name = name_of(each.name, index);
    if (needs_values && each.count != 0) require(each.values, "a parameter's values");
    parameter.values = {each.values, count_of(each.count),
                        type_of(each.type, fmt::format("parameters[{}].type", index))};
    if (each.gradient == nullptr) continue;
    const DataType type = gradient_type_of(each, index);
    parameter.gradient = elements_of(each.gradient, each, type, "a gradient");
    parameter.row_width = count_of(each.row_width);
    for (void* const summand : list(each.summands, each.summand_count, "summands")) {
      parameter.summands.push_back(elements_of(summand, each, type, "a summand"));
    }
  }
  return model;
}

std::size_t index_of(const ddl_reducer& reducer, int parameter) {
  const std::size_t parameters = reducer.gradients.size();
  if (parameter < 0 || as_index(parameter) >= parameters) {
    refuse("index: found {}, expected 0 to {}", parameter, parameters - 1);
  }
  const std::size_t gradient = reducer.gradients[as_index(parameter)];
  if (gradient == none) refuse("index: parameter {} has no gradient", parameter);
  return gradient;
}

}  // namespace ddl::c_api

extern "C" {

int ddl_reducer_create(const ddl_parameter* parameters, int count, const ddl_reducer_options* options,
                       ddl_reducer** reducer) {
  return guarded("ddl_reducer_create", [&](Job& job) {
    if (reducer != nullptr) *reducer = nullptr;
    require(options, "options");
    const GradientReducerOptions chosen = options_of(*options);
    const Model model = model_of(parameters, count, options->broadcast_values != 0);
    const bool on_device = options->on_device != 0;
    if (options->broadcast_values != 0) {
      on_device ? broadcast_on_device(job, model, 0, nullptr) : broadcast_parameters(job.context(), model, 0);
    }
    std::unique_ptr<ddl_reducer> made(
        new ddl_reducer{on_device ? device_reducer(job, gradients_of(model), chosen)
                                  : GradientReducer(job.context(), gradients_of(model), chosen),
                        gradient_numbers(model), nullptr, on_device && chosen.wire != DataType::f32});
    name_as_in_c(*made);
    ddl_reducer* const handle = job.add(std::move(made));
    if (reducer != nullptr) *reducer = handle;
  });
}

int ddl_reducer_rebind(ddl_reducer* reducer, const ddl_parameter* parameters, int count) {
  return guarded("ddl_reducer_rebind", [&](Job& job) {
    ddl_reducer& own = job.handle(&job.reducer(reducer));
    const Model model = model_of(parameters, count, false);
    own.reducer.rebind(gradients_of(model));
    own.gradients = gradient_numbers(model);
    name_as_in_c(own);
  });
}

int ddl_reducer_begin(ddl_reducer* reducer, double weight) {
  return guarded("ddl_reducer_begin", [&](Job& job) {
    job.handle(&job.reducer(reducer));
    in_step("ddl_reducer_begin", reducer, [&](ddl_reducer& own) { own.reducer.begin(weight); });
  });
}

int ddl_reducer_ready(ddl_reducer* reducer, int index) {
  constexpr const char* name = "ddl_reducer_ready";
  return reported(name, [&] {
    in_step(name, reducer, [&](ddl_reducer& own) { own.reducer.ready(index_of(own, index)); });
  });
}

int ddl_reducer_ready_rows(ddl_reducer* reducer, int index, const int32_t* rows, int64_t count) {
  constexpr const char* name = "ddl_reducer_ready_rows";
  return reported(name, [&] {
    in_step(name, reducer, [&](ddl_reducer& own) {
      if (count_of(count) != 0) require(rows, "rows");
      own.reducer.ready(index_of(own, index), std::span(rows, count_of(count)));
    });
  });
}

int ddl_reducer_absent(ddl_reducer* reducer, int index) {
  constexpr const char* name = "ddl_reducer_absent";
  return reported(name, [&] {
    in_step(name, reducer, [&](ddl_reducer& own) { own.reducer.absent(index_of(own, index)); });
  });
}

int ddl_reducer_wait(ddl_reducer* reducer, double weight, ddl_step* step) {
  return guarded("ddl_reducer_wait", [&](Job& job) {
    GradientReducer& own = job.handle(&job.reducer(reducer)).reducer;
    const ReducedStep found = weight == DDL_GIVEN ? own.wait() : own.wait(weight);
    if (step != nullptr) *step = {found.weight, found.norm, found.finite ? 1 : 0};
  });
}

int ddl_reducer_no_sync(ddl_reducer* reducer, int on) {
  return guarded("ddl_reducer_no_sync", [&](Job& job) {
    ddl_reducer& own = job.handle(&job.reducer(reducer));
    if (on == 0) return own.no_sync.reset();
    if (!own.no_sync) own.no_sync.reset(new GradientReducer::NoSync(own.reducer.no_sync()));
  });
}

int ddl_reducer_has_gradient(ddl_reducer* reducer, int index, int* has_value) {
  return guarded("ddl_reducer_has_gradient", [&](Job& job) {
    require(has_value, "has_value");
    ddl_reducer& own = job.handle(&job.reducer(reducer));
    *has_value = own.reducer.has_gradient(index_of(own, index)) ? 1 : 0;
  });
}

int ddl_reducer_free(ddl_reducer* reducer) {
  return guarded("ddl_reducer_free", [&](Job& job) { job.remove(reducer); });
}

int ddl_sampler_create(int64_t size, int64_t batch_size, uint64_t seed, int shuffle, ddl_sampler** sampler) {
  return made("ddl_sampler_create", "sampler", sampler, [&](Job& job) {
    return job.make<ddl_sampler>(
        ShardedSampler(job.context(), count_of(size),
                       {.seed = seed, .batch_size = count_of(batch_size), .shuffle = shuffle != 0}));
  });
}

int ddl_sampler_next(ddl_sampler* sampler, const size_t** samples, size_t* count) {
  return guarded("ddl_sampler_next", [&](Job& job) {
    require(samples, "samples");
    require(count, "count");
    ddl_sampler& own = job.handle(sampler);
    own.sampler.next(own.batch);
    *samples = own.batch.samples.data();
    *count = own.batch.samples.size();
  });
}

int ddl_sampler_steps_per_epoch(ddl_sampler* sampler, int64_t* steps) {
  return guarded("ddl_sampler_steps_per_epoch", [&](Job& job) {
    require(steps, "steps");
    *steps = static_cast<std::int64_t>(job.handle(sampler).sampler.steps_per_epoch());
  });
}

int ddl_sampler_free(ddl_sampler* sampler) {
  return guarded("ddl_sampler_free", [&](Job& job) { job.destroy(sampler); });
}

int ddl_learning_rate(double rate, int rule, int64_t step, int64_t ramp_steps, double* scaled) {
  return guarded("ddl_learning_rate", [&](Job& job) {
    require(scaled, "scaled");
    if (rule < DDL_SCALE_NONE || rule > DDL_SCALE_SQUARE_ROOT) {
      refuse("rule: found {}, expected DDL_SCALE_NONE (0) to DDL_SCALE_SQUARE_ROOT (2)", rule);
    }
    *scaled = rate * learning_rate_factor(static_cast<ScalingRule>(rule), job.context().size(),
                                          count_of(step), count_of(ramp_steps));
  });
}

int ddl_broadcast_parameters(const ddl_parameter* parameters, int count, int root) {
  return guarded("ddl_broadcast_parameters",
                 [&](Job& job) { broadcast_parameters(job.context(), model_of(parameters, count), root); });
}

int ddl_check_same(const ddl_parameter* parameters, int count) {
  return guarded("ddl_check_same",
                 [&](Job& job) { check_same_parameters(job.context(), model_of(parameters, count)); });
}

int ddl_checkpoint_create(const char* directory, int keep, int handle_signals, ddl_reducer* reducer,
                          ddl_sampler* sampler, ddl_checkpoint** checkpoint) {
  return made("ddl_checkpoint_create", "checkpoint", checkpoint, [&](Job& job) {
    require(directory, "directory");
    if (reducer != nullptr && job.handle(reducer).has_device_residuals) {
      throw Error(ErrorCode::unsupported,
                  "reducer: found gradients on a device that travel in 16 bits, whose rounding errors are in "
                  "the device's memory; expected gradients in host memory, or no `wire`. Pass null");
    }
    if (sampler != nullptr) static_cast<void>(job.handle(sampler));
    CheckpointOptions options{.handle_signals = handle_signals != 0};
    if (keep != 0) options.keep = count_of(keep);
    return job.make<ddl_checkpoint>(Checkpoint(job.context(), directory, options), reducer, sampler);
  });
}

int ddl_checkpoint_save(ddl_checkpoint* checkpoint, int64_t step, const ddl_parameter* parameters,
                        int count) {
  return guarded("ddl_checkpoint_save", [&](Job& job) {
    ddl_checkpoint& own = job.handle(checkpoint);
    const Model model = model_of(parameters, count);
    own.checkpoint.save(count_of(step), contents_of(state_of(job, own, model)));
  });
}

int ddl_checkpoint_restore(ddl_checkpoint* checkpoint, const ddl_parameter* parameters, int count,
                           int64_t* step) {
  return guarded("ddl_checkpoint_restore", [&](Job& job) {
    require(step, "step");
    *step = -1;
    ddl_checkpoint& own = job.handle(checkpoint);
    const Model model = model_of(parameters, count);
    const std::optional<SavedCheckpoint> saved = own.checkpoint.newest();
    if (!saved) return;
    restore(*saved, state_of(job, own, model));
    *step = static_cast<std::int64_t>(saved->step());
  });
}

int ddl_checkpoint_poll(ddl_checkpoint* checkpoint, int* request) {
  return guarded("ddl_checkpoint_poll", [&](Job& job) {
    require(request, "request");
    *request = static_cast<int>(job.handle(checkpoint).checkpoint.poll());
  });
}

int ddl_checkpoint_free(ddl_checkpoint* checkpoint) {
  return guarded("ddl_checkpoint_free", [&](Job& job) { job.destroy(checkpoint); });
}

int ddl_root_begin(const char* name) {
  int is_root = 0;
  guarded("ddl_root_begin", [&](Job& job) {
    if (job.root_work) refuse("found a second call before ddl_root_end, expected one");
    job.root_work.emplace(job.context(), name == nullptr ? "root" : name);
    is_root = job.context().is_root() ? 1 : 0;
  });
  return is_root;
}

int ddl_root_end(const char* problem) {
  return guarded("ddl_root_end", [&](Job& job) {
    if (!job.root_work) refuse("there was no ddl_root_begin, or it failed");
    std::exception_ptr mine;
    if (problem != nullptr && job.context().is_root()) {
      mine = std::make_exception_ptr(Error(ErrorCode::io, problem));
    }
    const struct EndWork {
      Job& job;
      ~EndWork() { job.root_work.reset(); }
    } end_whatever_happens{job};
    job.root_work->end(mine);
  });
}

int ddl_scope_begin(const char* name) {
  return guarded("ddl_scope_begin", [&](Job& job) {
    require(name, "name");
    scopes().push_back(job.context().timeline().scope(name));
  });
}

int ddl_scope_end(void) {
  return guarded("ddl_scope_end", [](Job&) {
    if (scopes().empty()) refuse("there was no ddl_scope_begin of this thread");
    scopes().pop_back();
  });
}

}  // extern "C"
