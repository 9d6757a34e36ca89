#pragma once

#include <span>
#include <vector>

#include "nmt_example/inference/beam_search.hpp"
#include "nmt_example/model/model.hpp"

namespace nmt {

/// What one model says of the next words, or several models with the same vocabularies and backend together:
/// the mean of their probabilities, and of their attention.
class ModelScorer final : public NextWordScorer {
 public:
  explicit ModelScorer(std::span<SearchModel> models) : models_(models) {}

  void step(std::span<const std::int32_t> parents, std::span<const std::int32_t> words) override;
  [[nodiscard]] std::span<const double> best_words() override;
  [[nodiscard]] std::span<const double> draw_words(std::span<const double> numbers,
                                                   double temperature) override;
  [[nodiscard]] std::span<const float> attention_weights() override;

 private:
  std::span<SearchModel> models_;
  std::vector<float> weights_;
};

}  // namespace nmt
