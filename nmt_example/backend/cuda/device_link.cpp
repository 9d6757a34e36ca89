#include "nmt_example/backend/device_link.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <optional>
#include <utility>

#include "ddl/device.hpp"
#include "nmt_example/backend/cuda/check.hpp"

namespace nmt {
namespace {

ddl::DeviceOptions current_device() {
  ddl::DeviceOptions options;
  cuda::check(cudaGetDevice(&options.device), "cudaGetDevice");
  return options;
}

class CudaLink final : public DeviceLink {
 public:
  explicit CudaLink(ddl::Context& context) : communicator_(context, current_device()) {}

  [[nodiscard]] std::string description() const override {
    return fmt::format("on {}, device {}", communicator_.device_name(), communicator_.device());
  }
  void part(std::string_view name, ddl::DeviceStream stream) override {
    scope_.reset();
    part_ = name;
    if (!part_.empty()) scope_.emplace(communicator_.scope(part_.c_str(), stream));
  }
  void* allocate(std::size_t bytes) override { return communicator_.allocate(bytes).data; }
  void reduce(const Tensor& values, ddl::ReduceOp op, ddl::DeviceStream stream) override {
    communicator_.all_reduce(values.data, values.data, static_cast<std::size_t>(values.size()), values.type,
                             op, stream);
  }
  ddl::GradientReducer make_reducer(std::vector<ddl::Gradient> gradients,
                                    const ddl::GradientReducerOptions& options) override {
    return {communicator_, std::move(gradients), options};
  }

 private:
  ddl::DeviceCommunicator communicator_;
  std::string part_;
  std::optional<ddl::DeviceCommunicator::Scope> scope_;
};

}  // namespace

std::unique_ptr<DeviceLink> open_device_link(ddl::Context& context) {
  return std::make_unique<CudaLink>(context);
}

}  // namespace nmt
