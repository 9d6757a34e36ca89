#pragma once

#include <span>
#include <vector>

#include "nmt_example/inference/beam_search.hpp"
#include "nmt_example/model/model.hpp"

namespace nmt {

/// What one model says of the next words, or several models with the same vocabularies together: the mean of
/// their probabilities, and of their attention.
class ModelScorer final : public NextWordScorer {
 public:
  ModelScorer(std::span<SearchModel> models, int beam) : models_(models), beam_(beam) {}

  void step(std::span<const std::int32_t> parents, std::span<const std::int32_t> words) override;
  [[nodiscard]] std::span<const float> log_probabilities() override;
  [[nodiscard]] std::span<const double> best_words() override;
  [[nodiscard]] std::span<const float> attention_weights() override;

 private:
  std::span<SearchModel> models_;
  int beam_;
  std::size_t rows_ = 0;
  std::vector<float> log_probabilities_, weights_;
  std::vector<double> best_words_;
  std::vector<std::int32_t> order_;
};

}  // namespace nmt
