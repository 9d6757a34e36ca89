#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "ddl/c_api/c_job.hpp"
#include "ddl/gradient_reducer.hpp"
#include "ddl/parameter.hpp"

struct ddl_reducer {
  ddl::GradientReducer reducer;
  std::vector<std::size_t> gradients;  // of each parameter; SIZE_MAX for those without
  std::unique_ptr<ddl::GradientReducer::NoSync> no_sync = nullptr;
  bool has_device_residuals = false;  // what its 16-bit wire owes is in the device's memory
};

namespace ddl::c_api {

/// Throws `invalid_argument` for arguments that cannot be. `needs_values`: else they may be null.
Model model_of(const ddl_parameter* parameters, int count, bool needs_values = true);
/// A reducer on the job's device. Throws `unsupported` in a build without CUDA.
GradientReducer device_reducer(Job& job, std::vector<Gradient> gradients, GradientReducerOptions options);

/// For calls of any thread, which hold no lock: `reducer` must be a live handle.
ddl_reducer& known(ddl_reducer* reducer);
/// The number of a parameter's gradient.
std::size_t index_of(const ddl_reducer& reducer, int parameter);

}  // namespace ddl::c_api
