#include "nmt_example/inference/beam_search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "nmt_example/data/vocabulary.hpp"

namespace nmt {
namespace {

constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

/// A word and the one before it in the history; hypotheses share their first words.
struct Link {
  std::int32_t word;
  std::int32_t before;  // -1: none
};

struct Hypothesis {
  std::int32_t last = -1;   // word in the history
  std::int32_t length = 0;  // without </s>
  std::int32_t row = 0;     // of the scorer's step, if it goes on
  bool ended = false;
  double log_probability = minus_infinity;
  double score = minus_infinity;
};

struct Candidate {
  double score;
  double log_probability;
  std::int32_t parent;  // in the sentence's beam
  std::int32_t word;
};

bool better(const Candidate& a, const Candidate& b) {
  if (a.score != b.score) return a.score > b.score;
  return a.parent != b.parent ? a.parent < b.parent : a.word < b.word;
}

double length_factor(std::int32_t words, double penalty) {
  return penalty == 0 ? 1.0 : std::pow((5.0 + words) / 6.0, penalty);
}

double coverage_term(std::span<const float> attention, double penalty) {
  double sum = 0;
  for (const float received : attention) sum += std::log(std::clamp<double>(received, 1e-10, 1.0));
  return penalty * sum;
}

class Search {
 public:
  Search(NextWordScorer& scorer, std::span<const std::int32_t> source_lengths, const SearchSettings& settings)
      : scorer_(scorer),
        source_lengths_(source_lengths),
        settings_(settings),
        width_(static_cast<std::size_t>(std::max(settings.beam_width, 1))),
        beam_(source_lengths.size() * width_),
        next_(width_),
        active_(source_lengths.size()),
        parents_(source_lengths.size()),
        words_(source_lengths.size(), Vocabulary::bos_id) {
    for (std::size_t s = 0; s < active_.size(); ++s) {
      Hypothesis& first = of_sentence(s)[0];
      first.log_probability = first.score = 0;
      first.row = static_cast<std::int32_t>(s);
    }
    std::iota(active_.begin(), active_.end(), std::size_t{0});
    std::iota(parents_.begin(), parents_.end(), 0);
  }

  std::vector<Translation> run() {
    for (std::int64_t step = 0; !parents_.empty(); ++step) {
      scorer_.step(parents_, words_);
      best_words_ = scorer_.best_words();
      each_ = best_words_.size() / parents_.size();
      if (settings_.coverage_penalty != 0) add_attention(step == 0);
      parents_.clear();
      words_.clear();
      std::size_t kept = 0;
      for (const std::size_t s : active_) {
        const std::size_t rows_before = parents_.size();
        advance(s, step + 1 >= limit_of(s));
        if (parents_.size() > rows_before) active_[kept++] = s;
      }
      active_.resize(kept);
    }
    return translations();
  }

 private:
  [[nodiscard]] std::span<Hypothesis> of_sentence(std::size_t s) {
    return std::span(beam_).subspan(s * width_, width_);
  }
  [[nodiscard]] std::int64_t limit_of(std::size_t s) const {
    return settings_.max_steps > 0 ? settings_.max_steps : 2 * source_lengths_[s] + 10;
  }

  /// Sums the attention that each row's hypothesis has received.
  void add_attention(bool is_first) {
    const std::span<const float> attention = scorer_.attention_weights();
    source_steps_ = attention.size() / parents_.size();
    received_before_.swap(received_);
    received_.assign(attention.begin(), attention.end());
    for (std::size_t r = 0; r < parents_.size() && !is_first; ++r) {
      const std::size_t parent = static_cast<std::size_t>(parents_[r]) * source_steps_;
      for (std::size_t i = 0; i < source_steps_; ++i)
        received_[r * source_steps_ + i] += received_before_[parent + i];
    }
  }

  void add_candidate(const Candidate& candidate) {
    if (candidate.log_probability > minus_infinity) candidates_.push_back(candidate);
  }

  /// Adds what may follow a hypothesis that has not ended.
  void add_candidates(std::size_t s, std::int32_t parent, const Hypothesis& hypothesis) {
    const auto r = static_cast<std::size_t>(hypothesis.row);
    const std::span<const double> row = best_words_.subspan(r * each_, each_);
    const std::size_t known = each_ / 2;
    const double factor = length_factor(hypothesis.length + 1, settings_.length_penalty);
    std::size_t taken = 0;
    for (std::size_t i = 0; i < known && taken < width_; ++i) {
      const auto word = static_cast<std::int32_t>(row[i]);
      if (word == Vocabulary::eos_id || word == Vocabulary::bos_id) continue;
      ++taken;
      const double log_probability = hypothesis.log_probability + row[known + i];
      add_candidate({log_probability / factor, log_probability, parent, word});
    }
    const double log_probability = hypothesis.log_probability + row.back();
    double score = log_probability / length_factor(hypothesis.length, settings_.length_penalty);
    if (!received_.empty()) {
      const auto length = static_cast<std::size_t>(source_lengths_[s]);
      score +=
          coverage_term(std::span(received_).subspan(r * source_steps_, length), settings_.coverage_penalty);
    }
    add_candidate({score, log_probability, parent, Vocabulary::eos_id});
  }

  /// Chooses the sentence's new beam, and adds the rows of hypotheses that go on.
  void advance(std::size_t s, bool is_last) {
    const std::span<Hypothesis> beam = of_sentence(s);
    candidates_.clear();
    for (std::size_t k = 0; k < width_; ++k) {
      const Hypothesis& hypothesis = beam[k];
      const auto parent = static_cast<std::int32_t>(k);
      if (hypothesis.log_probability == minus_infinity) continue;
      if (hypothesis.ended) {
        add_candidate({hypothesis.score, hypothesis.log_probability, parent, Vocabulary::eos_id});
      } else {
        add_candidates(s, parent, hypothesis);
      }
    }
    const auto kept = std::min(width_, candidates_.size());
    std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(kept),
                      candidates_.end(), better);
    next_.assign(width_, {});
    for (std::size_t k = 0; k < kept; ++k) {
      const Candidate& chosen = candidates_[k];
      Hypothesis& hypothesis = next_[k] = beam[static_cast<std::size_t>(chosen.parent)];
      const std::int32_t row = hypothesis.row;
      hypothesis.log_probability = chosen.log_probability;
      hypothesis.score = chosen.score;
      hypothesis.ended = chosen.word == Vocabulary::eos_id;
      if (hypothesis.ended) continue;
      history_.push_back({chosen.word, hypothesis.last});
      hypothesis.last = static_cast<std::int32_t>(history_.size()) - 1;
      ++hypothesis.length;
      if (is_last) continue;
      hypothesis.row = static_cast<std::int32_t>(parents_.size());
      parents_.push_back(row);
      words_.push_back(chosen.word);
    }
    std::ranges::copy(next_, beam.begin());
  }

  [[nodiscard]] Translation translation(const Hypothesis& hypothesis) const {
    std::vector<std::int32_t> words(static_cast<std::size_t>(hypothesis.length));
    std::int32_t link = hypothesis.last;
    for (std::size_t i = words.size(); i-- > 0; link = history_[static_cast<std::size_t>(link)].before)
      words[i] = history_[static_cast<std::size_t>(link)].word;
    return {std::move(words), hypothesis.log_probability, hypothesis.score};
  }

  std::vector<Translation> translations() {
    const auto returned = static_cast<std::size_t>(settings_.translations);
    std::vector<Translation> found;
    found.reserve(source_lengths_.size() * returned);
    for (std::size_t s = 0; s < source_lengths_.size(); ++s) {
      const std::span<Hypothesis> beam = of_sentence(s);
      // Hypotheses that have ended are preferred to those cut off at max_steps.
      std::ranges::stable_sort(beam, [](const Hypothesis& a, const Hypothesis& b) {
        return a.ended != b.ended ? a.ended : a.score > b.score;
      });
      for (const Hypothesis& hypothesis : beam.first(returned)) found.push_back(translation(hypothesis));
    }
    return found;
  }

  NextWordScorer& scorer_;
  std::span<const std::int32_t> source_lengths_;
  const SearchSettings& settings_;
  std::size_t width_;
  std::vector<Hypothesis> beam_;     // [sentences * width]
  std::vector<Hypothesis> next_;     // of one sentence
  std::vector<std::size_t> active_;  // sentences with rows
  std::vector<std::int32_t> parents_, words_;
  std::vector<Link> history_;
  std::vector<Candidate> candidates_;
  std::span<const double> best_words_;
  std::size_t each_ = 0;                           // elements of a row of best_words_
  std::vector<float> received_, received_before_;  // [rows * source_steps_]
  std::size_t source_steps_ = 0;
};

}  // namespace

std::vector<Translation> beam_search(NextWordScorer& scorer, std::span<const std::int32_t> source_lengths,
                                     const SearchSettings& settings) {
  return Search(scorer, source_lengths, settings).run();
}

}  // namespace nmt
