#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <span>
#include <utility>
#include <vector>

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
  DeviceGradientSync(ddl::Context& context, const Options& options, Backend& backend, Model& model)
      : stream_(backend.stream()),
        communicator_(context, current_device()),
        reducer_(communicator_, device_gradients(model),
                 {.gradients = ddl::GradientKind::sum, .leave_sums = true, .wire = wire_of(options)}) {}

  [[nodiscard]] std::string description() const override {
    return fmt::format("on {}, device {}", communicator_.device_name(), communicator_.device());
  }
  void part(std::string_view name) override {
    scope_.reset();
    part_ = name;
    if (!part_.empty()) scope_.emplace(communicator_.scope(part_.c_str(), stream_));
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
  [[nodiscard]] std::vector<ddl::NamedTensor> residuals() override {
    std::vector<ddl::NamedTensor> tensors;
    residuals_.clear();
    for (const ddl::DeviceGradient& residual : reducer_.residuals()) {
      std::vector<float>& values = residuals_.emplace_back(residual.count);
      ddl::check_cuda(
          cudaMemcpy(values.data(), residual.values, residual.count * sizeof(float), cudaMemcpyDeviceToHost),
          "cudaMemcpy");
      tensors.push_back({"residual/" + residual.name,
                         ddl::DataType::f32,
                         {static_cast<std::int64_t>(residual.count)},
                         std::as_writable_bytes(std::span(values))});
    }
    return tensors;
  }
  void take_residuals() override {
    const std::vector<ddl::DeviceGradient> residuals = reducer_.residuals();
    for (std::size_t i = 0; i < residuals.size(); ++i) {
      ddl::check_cuda(cudaMemcpy(residuals[i].values, residuals_[i].data(),
                                 residuals[i].count * sizeof(float), cudaMemcpyHostToDevice),
                      "cudaMemcpy");
    }
  }

 private:
  ddl::DeviceStream stream_;
  ddl::DeviceCommunicator communicator_;
  ddl::DeviceGradientReducer reducer_;
  std::vector<std::vector<float>> residuals_;  // as the host has them
  std::string part_;
  std::optional<ddl::DeviceCommunicator::Scope> scope_;
};

}  // namespace

std::unique_ptr<GradientSync> make_device_gradient_sync(ddl::Context& context, const Options& options,
                                                        Backend& backend, Model& model) {
  return std::make_unique<DeviceGradientSync>(context, options, backend, model);
}

}  // namespace nmt
