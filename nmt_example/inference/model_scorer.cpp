#include "nmt_example/inference/model_scorer.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "nmt_example/data/vocabulary.hpp"

namespace nmt {

void ModelScorer::step(std::span<const std::int32_t> parents, std::span<const std::int32_t> words) {
  rows_ = parents.size();
  for (SearchModel& model : models_) model.step(parents, words);
}

std::span<const float> ModelScorer::log_probabilities() {
  const std::span<const float> first = models_.front().log_probabilities();
  if (models_.size() == 1) return first;
  std::vector<std::span<const float>> others;
  for (SearchModel& model : models_.subspan(1)) others.push_back(model.log_probabilities());
  log_probabilities_.resize(first.size());
  const float log_models = std::log(static_cast<float>(models_.size()));
  for (std::size_t i = 0; i < first.size(); ++i) {
    float largest = first[i];
    for (const std::span<const float> other : others) largest = std::max(largest, other[i]);
    float sum = std::exp(first[i] - largest);
    for (const std::span<const float> other : others) sum += std::exp(other[i] - largest);
    log_probabilities_[i] = largest + std::log(sum) - log_models;
  }
  return log_probabilities_;
}

std::span<const double> ModelScorer::best_words() {
  if (models_.size() == 1) return models_.front().best_words(Vocabulary::eos_id);
  const std::span<const float> all = log_probabilities();
  const std::size_t vocabulary = all.size() / rows_;
  const std::size_t known = std::min(static_cast<std::size_t>(beam_) + 2, vocabulary);
  best_words_.clear();
  order_.resize(vocabulary);
  for (std::size_t r = 0; r < rows_; ++r) {
    const auto of_word = [row = all.subspan(r * vocabulary, vocabulary)](std::int32_t word) {
      return row[static_cast<std::size_t>(word)];
    };
    std::iota(order_.begin(), order_.end(), 0);
    std::partial_sort(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(known), order_.end(),
                      [&](std::int32_t a, std::int32_t b) {
                        return of_word(a) != of_word(b) ? of_word(a) > of_word(b) : a < b;
                      });
    const auto best = std::span(order_).first(known);
    best_words_.insert(best_words_.end(), best.begin(), best.end());
    for (const std::int32_t word : best) best_words_.push_back(of_word(word));
    best_words_.push_back(of_word(Vocabulary::eos_id));
  }
  return best_words_;
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
