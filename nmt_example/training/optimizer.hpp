#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddl/gradient_reducer.hpp"
#include "nmt_example/model/parameters.hpp"
#include "nmt_example/options/options.hpp"

namespace nmt {

/// Updates a model's parameters from its gradients, all of them or this rank's part. g is the gradient times
/// `gradient_scale`, lr the learning rate, and |x| the norm of a whole parameter:
/// - sgd; momentum (`UpdateRule::momentum` or `nesterov`); adam; adamw (Loshchilov and Hutter 2019);
/// - lamb (You et al. 2020): Adam's direction plus weight decay, times |parameter| / |direction|, or times 1
///   where either is 0. As in the authors' code, parameters without weight decay take the factor 1;
/// - novograd (Ginsburg et al. 2019): momentum of g / (sqrt(v) + epsilon) plus weight decay, v a moving mean
///   of |g|^2 that starts with its first value;
/// - with --larc_eta, sgd and momentum as LARC: the gradient and its weight decay times
///   min(1, max(1e-7, eta |parameter| / (lr (|g| + weight_decay |parameter| + 1e-7)))), or times 1 where
///   either norm is 0. That is OpenSeq2Seq's formula ("clip"), where its norm 0 gives 1e-7; the weight decay
///   in it and the 1 are as in NVIDIA's Apex.
/// Biases, gains and other parameters of one row have no weight decay, nor have tables of given vectors.
class Optimizer {
 public:
  /// Replaces every element, f64 in the backend's memory, by its sum over all ranks, the same bits on each.
  /// Collective.
  using SumOverRanks = std::function<void(const Tensor&)>;

  /// How many values of state it has for each parameter.
  static std::size_t moments(const Options& options);

  /// Updates all parameters; with --sharded_update, none before `take`.
  Optimizer(Backend& backend, ParameterSet& parameters, const Options& options);

  /// From now on updates these elements alone, as `GradientReducer::shards` gives them. Their state starts at
  /// zero. Collective.
  void take(std::span<const ddl::GradientPiece> shards, SumOverRanks sum_over_ranks);

  /// `step`, the `done`-th, is in the backend's memory. Afterwards the gradients are zero if it `is_whole`,
  /// else undefined. Collective with shards, for lamb, novograd and LARC.
  void update(const StepFactors* step);

  /// A part of the optimiser's state.
  struct State {
    std::string name;                 ///< "m/encoder/..."
    std::int64_t rows = 0, cols = 0;  ///< Of the whole state of that name, such as a parameter's moment.
    std::int64_t first = 0;           ///< Index of the first element in it.
    Tensor value;                     ///< [1, elements]
  };
  /// What must be saved to continue exactly; empty for SGD. Views, valid until `take`.
  [[nodiscard]] std::vector<State> state() const;
  /// Whether it updates all elements of all parameters.
  [[nodiscard]] bool is_whole() const noexcept { return whole_; }

 private:
  /// How an optimiser uses the backend.
  struct Recipe {
    UpdateRule rule;
    bool m = false, v = false;
    std::optional<UpdateRule> measure = {};  // before it; then every parameter has factors of its own
    LayerRule layer = LayerRule::lamb;       // if it measures
  };

  static Recipe recipe_of(const Options& options);
  void take_pieces(std::span<const ddl::GradientPiece> pieces);
  [[nodiscard]] double share_of(const ddl::GradientPiece& shard) const;

  Backend& backend_;
  ParameterSet& parameters_;
  Recipe recipe_;
  UpdateSettings settings_;
  LayerScaling scaling_;
  bool whole_ = true;
  SumOverRanks sum_over_ranks_;
  std::vector<std::int64_t> of_all_ranks_;  // for each parameter, how many of its last elements
  double ranks_ = 1;
  std::vector<UpdateRange> ranges_;  // those that it updates; a parameter is a layer
  UpdateTensors tensors_;
  std::shared_ptr<void> m_, v_;
  std::shared_ptr<void> sums_, second_moments_, layers_;  // for each parameter, if norms are measured
};

}  // namespace nmt
