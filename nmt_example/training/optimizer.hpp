#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ddl/gradient_reducer.hpp"
#include "nmt_example/model/parameters.hpp"
#include "nmt_example/options/options.hpp"

namespace nmt {

/// Updates a model's parameters from its gradients: SGD, or Adam with its two moments.
class Optimizer {
 public:
  /// Updates all parameters; with --sharded_update, none before `take`.
  Optimizer(Backend& backend, ParameterSet& parameters, const Options& options);

  /// From now on updates these elements alone, which must not overlap. Their moments start at zero.
  void take(std::span<const ddl::GradientPiece> shards);

  /// `step` counts from 1; gradients are multiplied by `gradient_scale`.
  void update(std::int64_t step, double gradient_scale, double learning_rate);

  /// A moment of some elements of a parameter.
  struct State {
    std::string name;                 ///< "m/encoder/..."
    std::int64_t rows = 0, cols = 0;  ///< The parameter's.
    std::int64_t first = 0;           ///< Index of the first element in the flat parameter.
    Tensor value;                     ///< [1, elements]
  };
  /// What must be saved to continue exactly; empty for SGD. Views, valid until `take`.
  [[nodiscard]] std::vector<State> state() const;
  /// Whether it updates all elements of all parameters.
  [[nodiscard]] bool is_whole() const noexcept { return whole_; }

 private:
  /// A range of the flat parameters, and where the moments of its first element are.
  struct Stretch {
    std::int64_t first = 0;
    std::int64_t count = 0;
    std::int64_t moment = 0;
  };

  [[nodiscard]] std::vector<Stretch> joined() const;
  [[nodiscard]] Tensor moment(void* block, std::int64_t first, std::int64_t count) const;

  Backend& backend_;
  ParameterSet& parameters_;
  AdamSettings settings_;
  bool adam_;
  bool whole_ = true;
  std::vector<ddl::GradientPiece> shards_;  // ascending
  std::vector<Stretch> stretches_;          // the same, with adjacent ones joined
  std::shared_ptr<void> m_, v_;
};

}  // namespace nmt
