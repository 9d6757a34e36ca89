#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "nmt_example/backend/backend.hpp"
#include "nmt_example/model/parameters.hpp"

namespace nmt {

/// Called with a parameter's index when its gradient is final.
using ReadyFunction = std::function<void(std::size_t)>;

/// A step's rate of dropout, which is 0 in evaluation and inference, and the key of all its random numbers.
struct DropoutSettings {
  double rate = 0;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
};

/// The uses of each parameter whose part of the gradient is still missing in a backward pass.
struct BackwardProgress {
  const ReadyFunction* ready;
  std::vector<int>& missing;
};

/// The step that a layer works in.
struct StepContext {
  Backend& backend;
  const ParameterSet& parameters;
  DropoutSettings dropout;
  Indices samples;                             ///< [sentences] number of each sentence in the data set
  const BackwardProgress* backward = nullptr;  ///< Null unless the step has a backward pass.

  [[nodiscard]] Tensor value(std::size_t parameter) const { return parameters.value(parameter); }
  [[nodiscard]] Tensor gradient(std::size_t parameter) const { return parameters.gradient(parameter); }

  void drop(const Tensor& x, const Tensor& y, std::uint32_t site, std::int64_t first_position = 0,
            std::int64_t first_column = 0) const {
    backend.dropout(x, y, {dropout.seed, dropout.step, site}, dropout.rate, samples, first_position,
                    first_column);
  }
  /// A layer has added its part of the parameter's gradient.
  void added_gradient(std::size_t parameter) const {
    if (--backward->missing[parameter] == 0) (*backward->ready)(parameter);
  }
};

}  // namespace nmt
