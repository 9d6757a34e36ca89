#include "ddl/device_gradient_reducer.hpp"

#include <cstddef>
#include <utility>

#include "ddl/device/cuda_handles.hpp"
#include "ddl/device/gradients/cuda_gradient_queue.hpp"
#include "ddl/gradients/stream_reducer.hpp"

namespace ddl {
namespace {

using gradient_pass::Outcome;
static_assert(sizeof(DeviceOutcome) == sizeof(Outcome) &&
              offsetof(DeviceOutcome, weight) == offsetof(Outcome, weight) &&
              offsetof(DeviceOutcome, scale) == offsetof(Outcome, scale) &&
              offsetof(DeviceOutcome, norm) == offsetof(Outcome, norm) &&
              offsetof(DeviceOutcome, finite) == offsetof(Outcome, finite));

void refuse_capture(DeviceStream stream) {
  if (!device::is_capturing(stream)) return;
  throw Error(
      ErrorCode::unsupported,
      "DeviceGradientReducer: the stream is being captured, but a step's weight and order are the host's; "
      "capture what comes before ready() and after finish(), and call these between the graphs");
}

std::vector<StreamGradient> stream_gradients(std::vector<DeviceGradient> gradients) {
  std::vector<StreamGradient> result;
  for (DeviceGradient& gradient : gradients) {
    result.push_back({std::move(gradient.name), gradient.values, gradient.count});
  }
  return result;
}

}  // namespace

struct DeviceGradientReducer::State {
  State(DeviceCommunicator& communicator, std::vector<DeviceGradient> gradients,
        const DeviceGradientReducerOptions& options)
      : queue(communicator),
        reducer(communicator.context(), queue, stream_gradients(std::move(gradients)),
                {.gradients = options.gradients,
                 .bucket_bytes = options.bucket_bytes,
                 .leave_sums = options.leave_sums,
                 .micro_batches = options.micro_batches,
                 .wire = options.wire}) {}

  CudaGradientQueue queue;
  StreamReducer reducer;
};

DeviceGradientReducer::DeviceGradientReducer(DeviceCommunicator& communicator,
                                             std::vector<DeviceGradient> gradients,
                                             DeviceGradientReducerOptions options)
    : state_(std::make_unique<State>(communicator, std::move(gradients), options)) {}
DeviceGradientReducer::~DeviceGradientReducer() = default;

void DeviceGradientReducer::begin(double weight) { state_->reducer.begin(weight); }
void DeviceGradientReducer::ready(std::size_t index, DeviceStream stream) {
  refuse_capture(stream);
  state_->reducer.ready(index, stream);
}
void DeviceGradientReducer::absent(std::size_t index) { state_->reducer.absent(index); }
void DeviceGradientReducer::finish(double weight, DeviceStream stream) {
  refuse_capture(stream);
  state_->reducer.finish(weight, stream);
}
void DeviceGradientReducer::finish(DeviceStream stream) {
  refuse_capture(stream);
  state_->reducer.finish({}, stream);
}

const DeviceOutcome* DeviceGradientReducer::outcome() const noexcept {
  return reinterpret_cast<const DeviceOutcome*>(state_->reducer.outcome());
}
ReducedStep DeviceGradientReducer::result() { return state_->reducer.result(); }

DeviceGradientReducer::NoSync::NoSync(bool& scope) noexcept : scope_(scope) { scope_ = true; }
DeviceGradientReducer::NoSync::~NoSync() { scope_ = false; }
DeviceGradientReducer::NoSync DeviceGradientReducer::no_sync() { return NoSync(state_->reducer.no_sync()); }

std::string DeviceGradientReducer::state() const { return state_->reducer.state(); }
void DeviceGradientReducer::restore(std::string_view state) { state_->reducer.restore(state); }
std::vector<DeviceGradient> DeviceGradientReducer::residuals() const {
  std::vector<DeviceGradient> result;
  for (StreamGradient& residual : state_->reducer.residuals()) {
    result.push_back({std::move(residual.name), residual.values, residual.count});
  }
  return result;
}
std::size_t DeviceGradientReducer::bytes() const noexcept { return state_->reducer.bytes(); }
std::size_t DeviceGradientReducer::buckets() const noexcept { return state_->reducer.buckets(); }
std::size_t DeviceGradientReducer::largest_bucket() const noexcept {
  return state_->reducer.largest_bucket();
}

}  // namespace ddl
