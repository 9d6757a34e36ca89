#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/context.hpp"
#include "ddl/gradient_reducer.hpp"

namespace nmt {

/// What joins the ranks' devices. Not thread-safe; for the thread that made it.
class DeviceLink {
 public:
  virtual ~DeviceLink() = default;
  /// For people.
  [[nodiscard]] virtual std::string description() const = 0;
  /// What is queued on the stream from now on is a part of the step that has this name, for the timeline;
  /// empty: none.
  virtual void part(std::string_view name, ddl::DeviceStream stream) = 0;
  /// A reducer of gradients in the device's memory. Collective. This must outlive it.
  virtual ddl::GradientReducer make_reducer(std::vector<ddl::Gradient> gradients,
                                            const ddl::GradientReducerOptions& options) = 0;
};

/// For the calling thread's device. Collective. Throws `unsupported`, agreed, where the ranks' devices cannot
/// be joined, or in a build without CUDA.
std::unique_ptr<DeviceLink> open_device_link(ddl::Context& context);

}  // namespace nmt
