#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nmt_example/model/parameters.hpp"
#include "nmt_example/options.hpp"

namespace nmt {

/// Updates all parameters of a model from its gradients: SGD, or Adam with its two moments.
class Optimizer {
 public:
  Optimizer(Backend& backend, ParameterSet& parameters, const Options& options);

  /// `step` counts from 1; gradients count times `gradient_scale`.
  void update(std::int64_t step, double gradient_scale, double learning_rate);

  struct State {
    std::string name;  ///< "m/encoder/..." for each parameter
    Tensor value;
  };
  /// What must be saved to go on exactly; empty for SGD. Views, valid while this lives.
  [[nodiscard]] std::vector<State> state() const;

 private:
  [[nodiscard]] bool adam() const noexcept { return m_ != nullptr; }
  [[nodiscard]] Tensor flat(void* data) const;

  Backend& backend_;
  ParameterSet& parameters_;
  AdamSettings settings_;
  std::shared_ptr<void> m_, v_;
};

}  // namespace nmt
