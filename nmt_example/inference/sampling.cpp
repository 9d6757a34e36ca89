#include "nmt_example/inference/sampling.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "nmt_example/backend/philox.hpp"
#include "nmt_example/data/vocabulary.hpp"

namespace nmt {
namespace {

/// From 0 to below 1, in steps of 2^-53.
double uniform_number(std::uint64_t seed, std::uint64_t sentence, std::uint32_t sample, std::uint32_t step) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
  const auto words = philox({low(sentence), high(sentence), sample, step}, {low(seed), high(seed)});
  return std::ldexp(static_cast<double>(std::uint64_t{words[0]} << 21 ^ words[1] >> 11), -53);
}

std::int32_t draw(std::span<const float> log_probabilities, double temperature, double number,
                  std::vector<double>& sums) {
  float largest = -std::numeric_limits<float>::infinity();
  for (std::size_t word = 0; word < log_probabilities.size(); ++word) {
    if (word != Vocabulary::bos_id) largest = std::max(largest, log_probabilities[word]);
  }
  sums.resize(log_probabilities.size());
  double sum = 0;
  for (std::size_t word = 0; word < log_probabilities.size(); ++word) {
    if (word != Vocabulary::bos_id) {
      sum += std::exp((static_cast<double>(log_probabilities[word]) - largest) / temperature);
    }
    sums[word] = sum;
  }
  // Rounding could make number * sum equal to sum, beyond the last word.
  const auto found = std::upper_bound(sums.begin(), sums.end(), number * sum);
  const auto last = std::lower_bound(sums.begin(), sums.end(), sum);
  return static_cast<std::int32_t>(std::min(found, last) - sums.begin());
}

}  // namespace

std::vector<Translation> sample(NextWordScorer& scorer, std::span<const std::int32_t> source_lengths,
                                std::span<const std::uint64_t> numbers, std::int64_t vocabulary,
                                const SamplingSettings& settings) {
  const auto samples = static_cast<std::size_t>(settings.samples);
  const std::size_t rows = source_lengths.size() * samples;
  std::vector<Translation> translations(rows);
  std::vector<std::size_t> active(rows);  // of each row of a step
  std::vector<std::int32_t> parents(rows);
  for (std::size_t r = 0; r < rows; ++r) {
    active[r] = r;
    parents[r] = static_cast<std::int32_t>(r / samples);
  }
  std::vector<std::int32_t> words(rows, Vocabulary::bos_id);
  std::vector<double> sums;
  for (std::uint32_t step = 0; !active.empty(); ++step) {
    scorer.step(parents, words);
    const std::span<const float> log_probabilities = scorer.log_probabilities();
    std::size_t kept = 0;
    for (std::size_t r = 0; r < active.size(); ++r) {
      const auto row = log_probabilities.subspan(r * static_cast<std::size_t>(vocabulary),
                                                 static_cast<std::size_t>(vocabulary));
      const std::size_t sentence = active[r] / samples;
      const auto number_of_sample = static_cast<std::uint32_t>(active[r] % samples);
      const double number = uniform_number(settings.seed, numbers[sentence], number_of_sample, step);
      const std::int32_t word = draw(row, settings.temperature, number, sums);
      Translation& translation = translations[active[r]];
      translation.log_probability += row[static_cast<std::size_t>(word)];
      const std::int64_t limit =
          settings.max_steps > 0 ? settings.max_steps : 2 * source_lengths[sentence] + 10;
      translation.score = translation.log_probability;
      if (word == Vocabulary::eos_id) continue;
      translation.words.push_back(word);
      if (std::int64_t{step} + 1 >= limit) continue;
      active[kept] = active[r];
      parents[kept] = static_cast<std::int32_t>(r);
      words[kept++] = word;
    }
    active.resize(kept);
    parents.resize(kept);
    words.resize(kept);
  }
  return translations;
}

}  // namespace nmt
