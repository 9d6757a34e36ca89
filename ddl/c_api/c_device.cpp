#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "ddl/c_api/c_job.hpp"
#include "ddl/device.hpp"
#include "ddl/parameters/parameters.hpp"
#if DDL_C_DEVICES
#include <cuda_runtime_api.h>

#include "collectives/device/cuda_check.hpp"
#endif

namespace {

using namespace ddl;
using namespace ddl::c_api;

/// A build without CUDA never calls `body`, so the compiler leaves out its references to ddl::cuda.
template <typename F>
auto with_cuda(Job& job, const F& body) -> decltype(body()) {
  static_cast<void>(job.context());
#if DDL_C_DEVICES
  return body();
#else
  throw Error(ErrorCode::unsupported,
              "this libddl_c was built without CUDA and reduces host memory only; use a build with CUDA "
              "(-DDDL_WITH_CUDA=ON), or copy the data to the host first");
#endif
}

/// The job's device, selected in the calling thread, which may be one that a framework has started for
/// backward.
inline DeviceCommunicator& selected(Job& job) {
  DeviceCommunicator& all = job.device();
#if DDL_C_DEVICES
  check_cuda(cudaSetDevice(all.device()), "cudaSetDevice");
#endif
  return all;
}

template <typename F>
int on_device(const char* function, const F& body) {
  return guarded(function, [&](Job& job) { with_cuda(job, [&] { body(job, selected(job)); }); });
}

DeviceStream stream_of(void* stream) { return static_cast<DeviceStream>(stream); }

}  // namespace

void ddl::c_api::broadcast_on_device(Job& job, const Model& model, int root, DeviceStream stream) {
  with_cuda(job, [&] {
    DeviceCommunicator& all = selected(job);
    require_same_shapes(job.context(), "ddl_device_broadcast_parameters", model);
    for (const Parameter& each : model) {
      void* const data = each.values.data();
      all.broadcast(data, data, each.values.size(), each.values.type(), root, stream);
    }
  });
}

GradientReducer ddl::c_api::device_reducer(Job& job, std::vector<Gradient> gradients,
                                           GradientReducerOptions options) {
  return with_cuda(job, [&] { return GradientReducer(selected(job), std::move(gradients), options); });
}

extern "C" {

int ddl_device_init(int device) {
  return guarded("ddl_device_init", [&](Job& job) {
    with_cuda(job, [&] {
      if (job.has_device()) refuse("the job has its device; found a second call, expected one");
      job.use(std::make_shared<DeviceCommunicator>(job.context(), DeviceOptions{.device = device}));
    });
  });
}

int ddl_device(void) {
  int number = -1;
  on_device("ddl_device", [&](Job&, DeviceCommunicator& all) { number = all.device(); });
  return number;
}

int ddl_device_malloc(void** memory, size_t bytes) {
  return made("ddl_device_malloc", "memory", memory, [&](Job& job) -> void* {
    return with_cuda(job, [&] { return selected(job).allocate(bytes).data; });
  });
}

int ddl_device_all_reduce(void* data, int64_t count, int type, int op, void* stream) {
  return on_device("ddl_device_all_reduce", [&](Job&, DeviceCommunicator& all) {
    all.all_reduce(data, data, count_of(count), type_of(type), op_of(op), stream_of(stream));
  });
}

int ddl_device_broadcast(void* data, int64_t count, int type, int root, void* stream) {
  return on_device("ddl_device_broadcast", [&](Job&, DeviceCommunicator& all) {
    all.broadcast(data, data, count_of(count), type_of(type), root, stream_of(stream));
  });
}

int ddl_device_reduce_scatter(const void* input, void* output, int64_t count, int type, int op,
                              void* stream) {
  return on_device("ddl_device_reduce_scatter", [&](Job&, DeviceCommunicator& all) {
    all.reduce_scatter(input, output, count_of(count), type_of(type), op_of(op), stream_of(stream));
  });
}

int ddl_device_all_gather(const void* input, void* output, int64_t count, int type, void* stream) {
  return on_device("ddl_device_all_gather", [&](Job&, DeviceCommunicator& all) {
    all.all_gather(input, output, count_of(count), type_of(type), stream_of(stream));
  });
}

int ddl_device_wait(void* stream) {
  return on_device("ddl_device_wait", [&](Job&, DeviceCommunicator& all) { all.wait(stream_of(stream)); });
}

int ddl_device_broadcast_parameters(const ddl_parameter* parameters, int count, int root, void* stream) {
  return guarded("ddl_device_broadcast_parameters", [&](Job& job) {
    broadcast_on_device(job, model_of(parameters, count), root, stream_of(stream));
  });
}

int ddl_reducer_ready_on(ddl_reducer* reducer, int index, void* stream) {
  constexpr const char* name = "ddl_reducer_ready_on";
  return on_device(name, [&](Job& job, DeviceCommunicator&) {
    job.handle(&job.reducer(reducer));
    in_step(name, reducer,
            [&](ddl_reducer& own) { own.reducer.ready(index_of(own, index), stream_of(stream)); });
  });
}

int ddl_reducer_ready_rows_on(ddl_reducer* reducer, int index, const int32_t* rows, int64_t count,
                              void* stream) {
  constexpr const char* name = "ddl_reducer_ready_rows_on";
  return on_device(name, [&](Job& job, DeviceCommunicator&) {
    job.handle(&job.reducer(reducer));
    in_step(name, reducer, [&](ddl_reducer& own) {
      if (count_of(count) != 0) require(rows, "rows");
      own.reducer.ready(index_of(own, index), std::span(rows, count_of(count)), stream_of(stream));
    });
  });
}

int ddl_reducer_finish(ddl_reducer* reducer, double weight, void* stream) {
  return on_device("ddl_reducer_finish", [&](Job& job, DeviceCommunicator&) {
    GradientReducer& own = job.handle(&job.reducer(reducer)).reducer;
    weight == DDL_GIVEN ? own.finish(stream_of(stream)) : own.finish(weight, stream_of(stream));
  });
}

int ddl_reducer_result(ddl_reducer* reducer, ddl_step* step) {
  return on_device("ddl_reducer_result", [&](Job& job, DeviceCommunicator&) {
    const ReducedStep found = job.handle(&job.reducer(reducer)).reducer.result();
    if (step != nullptr) *step = {found.weight, found.norm, found.finite ? 1 : 0};
  });
}

}  // extern "C"
