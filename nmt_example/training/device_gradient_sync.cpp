#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <utility>

#include "ddl/cuda_check.hpp"
#include "ddl/device.hpp"
#include "ddl/device_gradient_reducer.hpp"
#include "nmt_example/training/gradient_sync.hpp"

namespace nmt {
namespace {

ddl::DeviceOptions current_device() {
  ddl::DeviceOptions options;
  ddl::check_cuda(cudaGetDevice(&options.device), "cudaGetDevice");
  return options;
}

std::vector<ddl::DeviceGradient> device_gradients(Model& model) {
  const ParameterSet& parameters = model.parameters();
  std::vector<ddl::DeviceGradient> result;
  for (std::size_t i = 0; i < parameters.count(); ++i) {
    const Tensor& gradient = parameters.gradient(i);
    result.push_back({parameters.layout().parameters[i].name, gradient.as<float>(),
                      static_cast<std::size_t>(gradient.size())});
  }
  return result;
}

class DeviceGradientSync final : public GradientSync {
 public:
  DeviceGradientSync(ddl::Context& context, Backend& backend, Model& model)
      : stream_(backend.stream()),
        communicator_(context, current_device()),
        reducer_(communicator_, device_gradients(model),
                 {.gradients = ddl::GradientKind::sum, .leave_sums = true}) {}

  [[nodiscard]] std::string description() const override {
    return fmt::format("on {}, device {}", communicator_.device_name(), communicator_.device());
  }
  void begin(double weight) override { reducer_.begin(weight); }
  void ready(std::size_t index, std::optional<std::span<const std::int32_t>> /*rows*/) override {
    reducer_.ready(index, stream_);
  }
  void accumulate(const std::function<void()>& micro_batch) override {
    const auto scope = reducer_.no_sync();
    micro_batch();
    reducer_.finish(stream_);
  }
  ddl::ReducedStep finish() override {
    reducer_.finish(stream_);
    return reducer_.result();
  }
  [[nodiscard]] std::size_t buckets() const noexcept override { return reducer_.buckets(); }
  [[nodiscard]] std::string state() const override { return reducer_.state(); }
  void restore(std::string_view state) override { reducer_.restore(state); }

 private:
  ddl::DeviceStream stream_;
  ddl::DeviceCommunicator communicator_;
  ddl::DeviceGradientReducer reducer_;
};

}  // namespace

std::unique_ptr<GradientSync> make_device_gradient_sync(ddl::Context& context, Backend& backend,
                                                        Model& model) {
  return std::make_unique<DeviceGradientSync>(context, backend, model);
}

}  // namespace nmt
