#include "nmt_example/inference/model_scorer.hpp"

#include "nmt_example/data/vocabulary.hpp"

namespace nmt {

void ModelScorer::step(std::span<const std::int32_t> parents, std::span<const std::int32_t> words) {
  for (SearchModel& model : models_) model.step(parents, words);
}

std::span<const double> ModelScorer::best_words() {
  return models_.front().best_words(Vocabulary::eos_id, models_.subspan(1));
}

std::span<const double> ModelScorer::draw_words(std::span<const double> numbers, double temperature) {
  return models_.front().draw_words(numbers, temperature, Vocabulary::bos_id, models_.subspan(1));
}

std::span<const float> ModelScorer::attention_weights() {
  std::span<const float> first = models_.front().attention_weights();
  if (models_.size() == 1) return first;
  weights_.assign(first.begin(), first.end());
  float models = first.empty() ? 0.0f : 1.0f;
  for (SearchModel& model : models_.subspan(1)) {
    const std::span<const float> other = model.attention_weights();
    if (other.empty()) continue;
    weights_.resize(other.size());
    for (std::size_t i = 0; i < other.size(); ++i) weights_[i] += other[i];
    ++models;
  }
  for (float& weight : weights_) weight /= models;
  return weights_;
}

}  // namespace nmt
