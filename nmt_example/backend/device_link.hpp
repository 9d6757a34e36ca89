#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/context.hpp"
#include "ddl/gradient_reducer.hpp"
#include "nmt_example/backend/tensor.hpp"

namespace nmt {

/// The connection between the ranks' devices. Not thread-safe; for the thread that made it.
class DeviceLink {
 public:
  virtual ~DeviceLink() = default;
  /// For people. Names the device.
  [[nodiscard]] virtual std::string description() const = 0;
  /// Marks work queued on the stream from now on as the part of the step with this name, for the timeline; an
  /// empty name ends the part.
  virtual void part(std::string_view name, ddl::DeviceStream stream) = 0;
  /// Zeroed memory of the device that all ranks can reach, so that reductions in it need no copies. As many
  /// bytes on all ranks. Valid while this lives. Collective; throws `unsupported`, agreed, if there is too
  /// little.
  virtual void* allocate(std::size_t bytes) = 0;
  /// Queues the replacement of each value (f64, contiguous) by its reduction over all ranks. Collective.
  virtual void reduce(const Tensor& values, ddl::ReduceOp op, ddl::DeviceStream stream) = 0;
  /// A reducer for gradients in the device's memory; this must outlive it. Collective.
  virtual ddl::GradientReducer make_reducer(std::vector<ddl::Gradient> gradients,
                                            const ddl::GradientReducerOptions& options) = 0;
};

/// For the calling thread's device. Collective. Throws `unsupported`, agreed, if the ranks' devices cannot be
/// connected, or in a build without CUDA.
std::unique_ptr<DeviceLink> open_device_link(ddl::Context& context);

}  // namespace nmt
