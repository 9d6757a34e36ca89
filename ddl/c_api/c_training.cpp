#include <fmt/format.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddl/c_api/c_job.hpp"
#include "ddl/checkpoint.hpp"
#include "ddl/context/agreement.hpp"
#include "ddl/drift_check.hpp"
#include "ddl/error.hpp"
#include "ddl/gradient_reducer.hpp"
#include "ddl/learning_rate_scaling.hpp"
#include "ddl/sharded_sampler.hpp"
#include "ddl/timeline.hpp"

struct ddl_reducer {
  ddl::GradientReducer reducer;
  std::unique_ptr<ddl::GradientReducer::NoSync> no_sync = nullptr;
};
struct ddl_sampler {
  ddl::ShardedSampler sampler;
  ddl::ShardedBatch batch = {};
};
struct ddl_checkpoint {
  ddl::Checkpoint checkpoint;
  ddl_sampler* sampler = nullptr;
};

namespace {

using ddl::CheckpointRequest;
using ddl::DataType;
using ddl::Error;
using ddl::ErrorCode;
using ddl::GradientKind;
using ddl::c_api::count_of;
using ddl::c_api::guarded;
using ddl::c_api::Job;
using ddl::c_api::refuse;
using ddl::c_api::reported;
using ddl::c_api::require;

static_assert(DDL_GO_ON == static_cast<int>(CheckpointRequest::none) &&
              DDL_SAVE == static_cast<int>(CheckpointRequest::save) &&
              DDL_SAVE_AND_END == static_cast<int>(CheckpointRequest::save_and_end));
static_assert(DDL_SCALE_NONE == static_cast<int>(ddl::ScalingRule::none) &&
              DDL_SCALE_LINEAR == static_cast<int>(ddl::ScalingRule::linear) &&
              DDL_SCALE_SQUARE_ROOT == static_cast<int>(ddl::ScalingRule::square_root));

/// Of the one group of tensors that a checkpoint of a C program has.
constexpr const char* group_name = "model";
constexpr const char* sampler_key = "sampler.json";

std::string name_of(const char* name, int index) {
  return name == nullptr ? fmt::format("{}", index) : std::string(name);
}

template <typename T>
std::span<const T> list(const T* items, int count, const char* what) {
  if (count_of(count) != 0) require(items, what);
  return {items, count_of(count)};
}

ddl::GradientReducerOptions options_of(const ddl_reducer_options* given) {
  require(given, "options");
  if (given->gradients != DDL_GRADIENT_SUMS && given->gradients != DDL_GRADIENT_MEANS) {
    refuse(
        fmt::format("options.gradients: found {}, expected DDL_GRADIENT_SUMS (1) or DDL_GRADIENT_MEANS (2)",
                    given->gradients));
  }
  if (given->wire != 0 && given->wire != DDL_F16 && given->wire != DDL_BF16) {
    refuse(fmt::format("options.wire: found {}, expected 0, DDL_F16 (5) or DDL_BF16 (6)", given->wire));
  }
  return {.gradients = given->gradients == DDL_GRADIENT_SUMS ? GradientKind::sum : GradientKind::mean,
          .bucket_bytes = count_of(given->bucket_bytes),
          .overlap = given->after_backward == 0,
          .wire = given->wire == 0 ? DataType::f32 : static_cast<DataType>(given->wire)};
}

std::vector<ddl::Gradient> gradients_of(std::span<const ddl_gradient> given) {
  std::vector<ddl::Gradient> gradients;
  for (const ddl_gradient& each : given) {
    const int index = static_cast<int>(gradients.size());
    if (each.count != 0) require(each.values, "a gradient's values");
    gradients.push_back(
        {name_of(each.name, index), std::span(each.values, count_of(each.count)), count_of(each.row_width)});
  }
  return gradients;
}

std::span<std::byte> bytes_of(const ddl_tensor& tensor) {
  if (tensor.count != 0) require(tensor.values, "a tensor's values");
  return {static_cast<std::byte*>(tensor.values),
          count_of(tensor.count) * size_of(ddl::c_api::type_of(tensor.type))};
}

std::vector<ddl::Parameter> parameters_of(std::span<const ddl_tensor> given) {
  std::vector<ddl::Parameter> parameters;
  for (const ddl_tensor& each : given) {
    parameters.push_back({name_of(each.name, static_cast<int>(parameters.size())),
                          {bytes_of(each).data(), count_of(each.count), ddl::c_api::type_of(each.type)}});
  }
  return parameters;
}

ddl::CheckpointGroup group_of(std::span<const ddl_tensor> given) {
  ddl::CheckpointGroup group;
  for (const ddl_tensor& each : given) {
    group.whole.push_back({name_of(each.name, static_cast<int>(group.whole.size())),
                           ddl::c_api::type_of(each.type),
                           {each.count},
                           bytes_of(each)});
  }
  return group;
}

std::size_t index_of(int index) {
  if (index < 0) refuse(fmt::format("index: found {}, expected 0 or more", index));
  return static_cast<std::size_t>(index);
}

/// For what any thread may call: the handle is known to live.
ddl::GradientReducer& reducer_of(ddl_reducer* reducer) {
  require(reducer, "reducer");
  return reducer->reducer;
}

/// What ddl_root_begin has begun. One at a time.
std::optional<ddl::RootWork>& root_work() {
  static std::optional<ddl::RootWork> work;
  return work;
}

/// The scopes of ddl_scope_begin; the innermost is the last.
std::vector<ddl::Timeline::Scope>& scopes() {
  thread_local std::vector<ddl::Timeline::Scope> open;
  return open;
}

}  // namespace

extern "C" {

int ddl_reducer_create(const ddl_gradient* gradients, int count, const ddl_reducer_options* options,
                       ddl_reducer** reducer) {
  return guarded("ddl_reducer_create", [&](Job& job) {
    require(reducer, "reducer");
    *reducer = nullptr;
    *reducer = job.make<ddl_reducer>(ddl::GradientReducer(
        job.context(), gradients_of(list(gradients, count, "gradients")), options_of(options)));
  });
}

int ddl_reducer_begin(ddl_reducer* reducer, double weight) {
  return guarded("ddl_reducer_begin", [&](Job& job) { job.handle(reducer).reducer.begin(weight); });
}

int ddl_reducer_ready(ddl_reducer* reducer, int index) {
  return reported("ddl_reducer_ready", [&] { reducer_of(reducer).ready(index_of(index)); });
}

int ddl_reducer_ready_rows(ddl_reducer* reducer, int index, const int32_t* rows, int64_t count) {
  return reported("ddl_reducer_ready_rows", [&] {
    if (count_of(count) != 0) require(rows, "rows");
    reducer_of(reducer).ready(index_of(index), std::span(rows, count_of(count)));
  });
}

int ddl_reducer_absent(ddl_reducer* reducer, int index) {
  return reported("ddl_reducer_absent", [&] { reducer_of(reducer).absent(index_of(index)); });
}

int ddl_reducer_wait(ddl_reducer* reducer, double weight, ddl_step* step) {
  return guarded("ddl_reducer_wait", [&](Job& job) {
    ddl::GradientReducer& own = job.handle(reducer).reducer;
    const ddl::ReducedStep found = weight == DDL_GIVEN ? own.wait() : own.wait(weight);
    if (step != nullptr) *step = {found.weight, found.norm, found.finite ? 1 : 0};
  });
}

int ddl_reducer_no_sync(ddl_reducer* reducer, int on) {
  return guarded("ddl_reducer_no_sync", [&](Job& job) {
    ddl_reducer& own = job.handle(reducer);
    if (on == 0) return own.no_sync.reset();
    if (!own.no_sync) own.no_sync.reset(new ddl::GradientReducer::NoSync(own.reducer.no_sync()));
  });
}

int ddl_reducer_has_gradient(ddl_reducer* reducer, int index, int* has_value) {
  return guarded("ddl_reducer_has_gradient", [&](Job& job) {
    require(has_value, "has_value");
    *has_value = job.handle(reducer).reducer.has_gradient(index_of(index)) ? 1 : 0;
  });
}

int ddl_reducer_free(ddl_reducer* reducer) {
  return guarded("ddl_reducer_free", [&](Job& job) { job.destroy(reducer); });
}

int ddl_sampler_create(int64_t size, int64_t batch_size, uint64_t seed, int shuffle, ddl_sampler** sampler) {
  return guarded("ddl_sampler_create", [&](Job& job) {
    require(sampler, "sampler");
    *sampler = nullptr;
    *sampler = job.make<ddl_sampler>(
        ddl::ShardedSampler(job.context(), count_of(size),
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
      refuse(fmt::format("rule: found {}, expected DDL_SCALE_NONE (0) to DDL_SCALE_SQUARE_ROOT (2)", rule));
    }
    *scaled = rate * ddl::learning_rate_factor(static_cast<ddl::ScalingRule>(rule), job.context().size(),
                                               count_of(step), count_of(ramp_steps));
  });
}

int ddl_broadcast_parameters(const ddl_tensor* tensors, int count, int root) {
  return guarded("ddl_broadcast_parameters", [&](Job& job) {
    ddl::broadcast_parameters(job.context(), parameters_of(list(tensors, count, "tensors")), root);
  });
}

int ddl_check_same(const ddl_tensor* tensors, int count) {
  return guarded("ddl_check_same", [&](Job& job) {
    ddl::check_same_parameters(job.context(), parameters_of(list(tensors, count, "tensors")));
  });
}

int ddl_checkpoint_create(const char* directory, int keep, int handle_signals, ddl_sampler* sampler,
                          ddl_checkpoint** checkpoint) {
  return guarded("ddl_checkpoint_create", [&](Job& job) {
    require(checkpoint, "checkpoint");
    require(directory, "directory");
    *checkpoint = nullptr;
    if (sampler != nullptr) static_cast<void>(job.handle(sampler));
    ddl::CheckpointOptions options{.handle_signals = handle_signals != 0};
    if (keep != 0) options.keep = count_of(keep);
    *checkpoint = job.make<ddl_checkpoint>(ddl::Checkpoint(job.context(), directory, options), sampler);
  });
}

int ddl_checkpoint_save(ddl_checkpoint* checkpoint, int64_t step, const ddl_tensor* tensors, int count) {
  return guarded("ddl_checkpoint_save", [&](Job& job) {
    ddl_checkpoint& own = job.handle(checkpoint);
    ddl::CheckpointContents contents{.groups = {{group_name, group_of(list(tensors, count, "tensors"))}}};
    if (own.sampler != nullptr) contents.files[sampler_key] = job.handle(own.sampler).sampler.state();
    own.checkpoint.save(count_of(step), contents);
  });
}

int ddl_checkpoint_restore(ddl_checkpoint* checkpoint, const ddl_tensor* tensors, int count, int64_t* step) {
  return guarded("ddl_checkpoint_restore", [&](Job& job) {
    require(step, "step");
    *step = -1;
    ddl_checkpoint& own = job.handle(checkpoint);
    const std::optional<ddl::SavedCheckpoint> saved = own.checkpoint.newest();
    if (!saved) return;
    saved->restore(group_name, group_of(list(tensors, count, "tensors")));
    if (own.sampler != nullptr) job.handle(own.sampler).sampler.restore(saved->file(sampler_key));
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
    if (root_work()) refuse("found a second call before ddl_root_end, expected one");
    root_work().emplace(job.context(), name == nullptr ? "root" : name);
    is_root = job.context().is_root() ? 1 : 0;
  });
  return is_root;
}

int ddl_root_end(const char* problem) {
  return guarded("ddl_root_end", [&](Job& job) {
    if (!root_work()) refuse("there was no ddl_root_begin, or it failed");
    std::exception_ptr mine;
    if (problem != nullptr && job.context().is_root()) {
      mine = std::make_exception_ptr(Error(ErrorCode::io, problem));
    }
    struct Reset {
      ~Reset() { root_work().reset(); }
    } reset;
    root_work()->end(mine);
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
