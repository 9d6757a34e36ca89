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
  bool has_device_residuals = false;
};

namespace ddl::c_api {

/// Each throws `invalid_argument` for arguments that cannot be.
Model model_of(const ddl_parameter* parameters, int count);
GradientReducerOptions options_of(const ddl_reducer_options* given);
struct RegisteredGradients {
  std::vector<Gradient> gradients;
  std::vector<std::size_t> indices;  // of each parameter in `gradients`; SIZE_MAX for those without
};
RegisteredGradients gradients_of(const ddl_parameter* parameters, int count);

/// For calls of any thread, which hold no lock: `reducer` must be a live handle.
ddl_reducer& known(ddl_reducer* reducer);
/// The number of a parameter's gradient.
std::size_t index_of(const ddl_reducer& reducer, int parameter);

}  // namespace ddl::c_api
