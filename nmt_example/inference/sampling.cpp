#include "nmt_example/inference/sampling.hpp"

#include <cmath>

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

}  // namespace

std::vector<Translation> sample(NextWordScorer& scorer, std::span<const std::int32_t> source_lengths,
                                std::span<const std::uint64_t> numbers, const SamplingSettings& settings) {
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
  std::vector<double> uniform;
  for (std::uint32_t step = 0; !active.empty(); ++step) {
    uniform.clear();
    for (const std::size_t row : active) {
      uniform.push_back(uniform_number(settings.seed, numbers[row / samples],
                                       static_cast<std::uint32_t>(row % samples), step));
    }
    scorer.step(parents, words);
    const std::span<const double> drawn = scorer.draw_words(uniform, settings.temperature);
    std::size_t kept = 0;
    for (std::size_t r = 0; r < active.size(); ++r) {
      const std::size_t sentence = active[r] / samples;
      const auto word = static_cast<std::int32_t>(drawn[2 * r]);
      Translation& translation = translations[active[r]];
      translation.log_probability += drawn[2 * r + 1];
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
