#include "nmt_example/inference/beam_search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "nmt_example/data/vocabulary.hpp"

namespace nmt {
namespace {

constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

struct Hypothesis {
  std::vector<std::int32_t> words;
  double log_probability = minus_infinity;
  double score = minus_infinity;
  bool ended = false;
};

struct Candidate {
  double score;
  double log_probability;
  std::int64_t row;
  std::int32_t word;
  bool was_ended;
};

bool better(const Candidate& a, const Candidate& b) {
  if (a.score != b.score) return a.score > b.score;
  return a.row != b.row ? a.row < b.row : a.word < b.word;
}

double length_factor(std::size_t words, double penalty) {
  return penalty == 0 ? 1.0 : std::pow((5.0 + static_cast<double>(words)) / 6.0, penalty);
}

double coverage_term(std::span<const float> attention, double penalty) {
  double sum = 0;
  for (const float received : attention) sum += std::log(std::clamp<double>(received, 1e-10, 1.0));
  return penalty * sum;
}

}  // namespace

std::vector<Translation> beam_search(NextWordScorer& scorer, std::span<const std::int32_t> source_lengths,
                                     const SearchSettings& settings) {
  const auto sentences = static_cast<std::int64_t>(source_lengths.size());
  const std::int64_t width = std::max(settings.beam_width, 1);
  const auto rows = static_cast<std::size_t>(sentences * width);
  std::vector<Hypothesis> beam(rows);
  std::vector<Hypothesis> next(rows);
  for (std::int64_t s = 0; s < sentences; ++s) {
    Hypothesis& first = beam[static_cast<std::size_t>(s * width)];
    first.log_probability = first.score = 0;
  }
  std::vector<std::int32_t> parents(rows);
  std::vector<std::int32_t> words(rows, Vocabulary::bos_id);
  for (std::size_t r = 0; r < rows; ++r) parents[r] = static_cast<std::int32_t>(r);
  std::vector<float> received, received_before;
  std::vector<Candidate> candidates;

  const auto limit_of = [&](std::int64_t s) -> std::int64_t {
    return settings.max_steps > 0 ? settings.max_steps : 2 * source_lengths[static_cast<std::size_t>(s)] + 10;
  };
  std::int64_t steps = 0;
  for (std::int64_t s = 0; s < sentences; ++s) steps = std::max(steps, limit_of(s));

  for (std::int64_t step = 0; step < steps; ++step) {
    scorer.step(parents, words);
    const std::span<const double> best_words = scorer.best_words();
    const std::size_t each = rows == 0 ? 0 : best_words.size() / rows;
    const std::span<const float> attention =
        settings.coverage_penalty != 0 ? scorer.attention_weights() : std::span<const float>();
    const std::size_t source_steps = rows == 0 ? 0 : attention.size() / rows;
    if (!attention.empty()) {
      received_before.swap(received);
      received.assign(attention.begin(), attention.end());
      for (std::size_t r = 0; r < rows && step > 0; ++r) {
        for (std::size_t i = 0; i < source_steps; ++i) {
          const auto parent = static_cast<std::size_t>(parents[r]);
          // An ended hypothesis receives no more attention.
          received[r * source_steps + i] = received_before[parent * source_steps + i] +
                                           (beam[r].ended ? 0.0f : attention[r * source_steps + i]);
        }
      }
    }

    bool all_done = true;
    for (std::int64_t s = 0; s < sentences; ++s) {
      if (step >= limit_of(s)) {
        for (std::int64_t k = s * width; k < (s + 1) * width; ++k) {
          const auto r = static_cast<std::size_t>(k);
          next[r] = std::move(beam[r]);
          parents[r] = static_cast<std::int32_t>(k);
          words[r] = Vocabulary::eos_id;
        }
        continue;
      }
      const bool last = step + 1 == limit_of(s);
      candidates.clear();
      for (std::int64_t r = s * width; r < (s + 1) * width; ++r) {
        const Hypothesis& hypothesis = beam[static_cast<std::size_t>(r)];
        if (hypothesis.log_probability == minus_infinity) continue;
        if (hypothesis.ended) {
          candidates.push_back({hypothesis.score, hypothesis.log_probability, r, Vocabulary::eos_id, true});
          continue;
        }
        const std::span<const double> row = best_words.subspan(static_cast<std::size_t>(r) * each, each);
        const std::size_t known = each / 2;
        std::int64_t taken = 0;
        for (std::size_t i = 0; i < known && taken < width; ++i) {
          const auto word = static_cast<std::int32_t>(row[i]);
          if (word == Vocabulary::eos_id || word == Vocabulary::bos_id) continue;
          ++taken;
          const double log_probability = hypothesis.log_probability + row[known + i];
          candidates.push_back(
              {log_probability / length_factor(hypothesis.words.size() + 1, settings.length_penalty),
               log_probability, r, word, false});
        }
        const double log_probability = hypothesis.log_probability + row.back();
        double score = log_probability / length_factor(hypothesis.words.size(), settings.length_penalty);
        if (!received.empty()) {
          const auto length = static_cast<std::size_t>(source_lengths[static_cast<std::size_t>(s)]);
          score +=
              coverage_term(std::span(received).subspan(static_cast<std::size_t>(r) * source_steps, length),
                            settings.coverage_penalty);
        }
        candidates.push_back({score, log_probability, r, Vocabulary::eos_id, false});
      }
      const auto kept = std::min(static_cast<std::size_t>(width), candidates.size());
      std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(kept),
                        candidates.end(), better);
      for (std::int64_t k = 0; k < width; ++k) {
        const auto r = static_cast<std::size_t>(s * width + k);
        if (static_cast<std::size_t>(k) >= kept) {
          next[r] = Hypothesis{};
          parents[r] = static_cast<std::int32_t>(s * width);
          words[r] = Vocabulary::eos_id;
          continue;
        }
        const Candidate& chosen = candidates[static_cast<std::size_t>(k)];
        next[r] = beam[static_cast<std::size_t>(chosen.row)];
        next[r].log_probability = chosen.log_probability;
        next[r].score = chosen.score;
        next[r].ended = chosen.word == Vocabulary::eos_id;
        if (!next[r].ended) next[r].words.push_back(chosen.word);
        parents[r] = static_cast<std::int32_t>(chosen.row);
        words[r] = chosen.word;
        all_done = all_done && (last || next[r].ended);
      }
    }
    beam.swap(next);
    if (all_done) break;
  }

  std::vector<Translation> translations;
  translations.reserve(static_cast<std::size_t>(sentences * settings.translations));
  for (std::int64_t s = 0; s < sentences; ++s) {
    const auto first = beam.begin() + s * width;
    // Hypotheses that have ended are preferred to those cut off at max_steps.
    std::stable_sort(first, first + width, [](const Hypothesis& a, const Hypothesis& b) {
      return a.ended != b.ended ? a.ended : a.score > b.score;
    });
    for (auto hypothesis = first; hypothesis != first + settings.translations; ++hypothesis) {
      translations.push_back({hypothesis->words, hypothesis->log_probability, hypothesis->score});
    }
  }
  return translations;
}

}  // namespace nmt
