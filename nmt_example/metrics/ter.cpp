#include "nmt_example/metrics/ter.hpp"

#include <locale.h>
#include <wctype.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "nmt_example/metrics/metric.hpp"
#include "nmt_example/text/white_space.hpp"

namespace nmt {
namespace {

constexpr std::size_t longest_shift = 10, farthest_shift = 50, most_candidates = 1000;
constexpr double beam = 25;

/// A line's words as numbers.
using WordNumbers = std::vector<int>;

/// Bytes of the character at the start of UTF-8 text, at least 1.
std::size_t character_at(std::string_view text) {
  std::size_t length = 1;
  while (length < text.size() && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80) ++length;
  return length;
}

/// Words that differ in their case alone have the same number.
class Numbering {
 public:
  Numbering() : locale_(::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)) {}
  Numbering(const Numbering&) = delete;
  Numbering& operator=(const Numbering&) = delete;
  ~Numbering() {
    if (locale_ != nullptr) ::freelocale(locale_);
  }

  WordNumbers words(std::string_view line) {
    WordNumbers numbers;
    std::u32string word;
    const auto end_word = [&] {
      if (word.empty()) return;
      numbers.push_back(numbers_.try_emplace(word, static_cast<int>(numbers_.size())).first->second);
      word.clear();
    };
    while (!line.empty()) {
      std::size_t length = white_space_at(line);
      if (length > 0) {
        end_word();
      } else {
        length = character_at(line);
        word += lower(line.substr(0, length));
      }
      line.remove_prefix(length);
    }
    end_word();
    return numbers;
  }

 private:
  [[nodiscard]] char32_t lower(std::string_view character) const {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(character[i]); };
    char32_t code = byte(0);
    if (character.size() > 1) code &= 0x7Fu >> character.size();
    for (std::size_t i = 1; i < character.size(); ++i) code = code << 6 | (byte(i) & 0x3Fu);
    const auto wide = static_cast<wint_t>(code);
    return static_cast<char32_t>(locale_ != nullptr ? ::towlower_l(wide, locale_) : ::towlower(wide));
  }

  locale_t locale_;
  std::map<std::u32string, int> numbers_;
};

/// How a word is edited on the way from the hypothesis to the reference.
enum class Edit : std::uint8_t { keep, substitute, insert, remove };

/// Edit distances between the beginnings of a hypothesis and those of a reference, near the diagonal.
class EditTable {
 public:
  EditTable(const WordNumbers& hypothesis, const WordNumbers& reference)
      : reference_(reference),
        columns_(reference.size() + 1),
        cells_((hypothesis.size() + 1) * columns_),
        ratio_(hypothesis.empty()
                   ? 1
                   : static_cast<double>(reference.size()) / static_cast<double>(hypothesis.size())),
        width_(beam < ratio_ / 2 ? std::ceil(ratio_ / 2 + beam) : beam) {
    for (std::size_t j = 0; j < columns_; ++j) cells_[j] = {static_cast<int>(j), Edit::insert};
    set(hypothesis, 0);
  }

  /// Another order of the hypothesis, of which the first `same` words are as before.
  void set(const WordNumbers& hypothesis, std::size_t same) {
    rows_ = hypothesis.size();
    for (std::size_t i = same + 1; i <= rows_; ++i) {
      Cell* const row = &cells_[i * columns_];
      const Cell* const above = row - columns_;
      std::fill_n(row, columns_, Cell{});
      const double diagonal = std::floor(static_cast<double>(i) * ratio_);
      const auto begin = static_cast<std::size_t>(std::max(0.0, diagonal - width_));
      const auto end =
          i == rows_ ? columns_
                     : static_cast<std::size_t>(std::min(static_cast<double>(columns_), diagonal + width_));
      for (std::size_t j = begin; j < end; ++j) {
        const auto take = [&](int cost, Edit edit) {
          if (cost < row[j].cost) row[j] = {cost, edit};
        };
        if (j > 0) {
          const bool equal = hypothesis[i - 1] == reference_[j - 1];
          take(above[j - 1].cost + (equal ? 0 : 1), equal ? Edit::keep : Edit::substitute);
        }
        take(above[j].cost + 1, Edit::remove);
        if (j > 0) take(row[j - 1].cost + 1, Edit::insert);
      }
    }
  }

  [[nodiscard]] int distance() const { return cells_[rows_ * columns_ + columns_ - 1].cost; }

  /// Calls f(edit) for each edit, from the last to the first.
  template <typename F>
  void trace_back(const F& f) const {
    for (std::size_t i = rows_, j = columns_ - 1; i > 0 || j > 0;) {
      const Edit edit = cells_[i * columns_ + j].edit;
      f(edit);
      if (edit != Edit::insert) --i;
      if (edit != Edit::remove) --j;
    }
  }

 private:
  struct Cell {
    int cost = std::numeric_limits<int>::max() / 2;
    Edit edit = Edit::keep;
  };

  std::span<const int> reference_;
  std::size_t rows_ = 0, columns_;
  std::vector<Cell> cells_;
  double ratio_, width_;
};

/// Which words of hypothesis and reference belong together.
struct Alignment {
  std::vector<std::ptrdiff_t> of_reference;  // the last hypothesis word at or before each; -1: none
  std::vector<bool> hypothesis_errs, reference_errs;

  explicit Alignment(const EditTable& table) {
    std::vector<Edit> edits;
    table.trace_back([&](Edit edit) { edits.push_back(edit); });
    std::ranges::reverse(edits);
    std::ptrdiff_t position = -1;
    for (const Edit edit : edits) {
      if (edit != Edit::insert) {
        ++position;
        hypothesis_errs.push_back(edit != Edit::keep);
      }
      if (edit == Edit::remove) continue;
      of_reference.push_back(position);
      reference_errs.push_back(edit != Edit::keep);
    }
  }
};

bool any(const std::vector<bool>& errors, std::size_t first, std::size_t count) {
  const auto begin = errors.begin() + static_cast<std::ptrdiff_t>(first);
  return std::find(begin, begin + static_cast<std::ptrdiff_t>(count), true) !=
         begin + static_cast<std::ptrdiff_t>(count);
}

/// The words with those of [start, start + length) moved to before word `target`; within them, by as many.
WordNumbers shifted(const WordNumbers& words, std::size_t start, std::size_t length, std::size_t target) {
  WordNumbers moved = words;
  const auto at = [&](std::size_t i) { return moved.begin() + static_cast<std::ptrdiff_t>(i); };
  if (target < start) {
    std::rotate(at(target), at(start), at(start + length));
  } else if (target > start + length) {
    std::rotate(at(start), at(start + length), at(target));
  } else {
    std::rotate(at(start), at(start + length), at(std::min(length + target, words.size())));
  }
  return moved;
}

/// Moves words of a hypothesis so that its edit distance falls most.
class Shifter {
 public:
  Shifter(WordNumbers hypothesis, const WordNumbers& reference)
      : words_(std::move(hypothesis)), reference_(reference), table_(words_, reference) {}

  /// Shifts until that gains nothing. Returns all edits.
  int run() {
    int shifts = 0;
    while (shift()) ++shifts;
    return shifts + table_.distance();
  }

 private:
  /// Better ones are greater: those that gain more, move more words, come earlier, or move to an earlier
  /// place.
  using Rank = std::tuple<int, std::size_t, std::ptrdiff_t, std::ptrdiff_t>;

  bool shift() {
    const Alignment alignment(table_);
    const int before = table_.distance();
    EditTable trial = table_;
    Rank best{std::numeric_limits<int>::min(), 0, 0, 0};
    WordNumbers best_words = words_;
    const auto consider = [&](std::size_t start, std::size_t length, std::size_t target) {
      WordNumbers moved = shifted(words_, start, length, target);
      trial = table_;
      trial.set(moved, std::min(start, target));
      const Rank rank{before - trial.distance(), length, -static_cast<std::ptrdiff_t>(start),
                      -static_cast<std::ptrdiff_t>(target)};
      ++candidates_;
      if (rank <= best) return;
      best = rank;
      best_words = std::move(moved);
    };
    for_each_match([&](std::size_t start, std::size_t place, std::size_t length) {
      if (!any(alignment.hypothesis_errs, start, length) || !any(alignment.reference_errs, place, length))
        return true;
      const auto aligned = alignment.of_reference[place];
      const auto first = static_cast<std::ptrdiff_t>(start);
      if (first <= aligned && aligned < first + static_cast<std::ptrdiff_t>(length)) return true;
      std::ptrdiff_t previous = -1;
      for (std::size_t offset = 0; offset <= length; ++offset) {
        const std::ptrdiff_t target =
            place + offset == 0 ? 0 : alignment.of_reference[place + offset - 1] + 1;
        if (target == previous) continue;
        previous = target;
        consider(start, length, static_cast<std::size_t>(target));
      }
      return candidates_ < most_candidates;
    });
    if (candidates_ >= most_candidates || std::get<0>(best) <= 0) return false;
    words_ = std::move(best_words);
    table_.set(words_, 0);
    return true;
  }

  /// Calls f(start in hypothesis, start in reference, length) for equal words, until it returns false.
  template <typename F>
  void for_each_match(const F& f) const {
    for (std::size_t h = 0; h < words_.size(); ++h) {
      for (std::size_t r = 0; r < reference_.size(); ++r) {
        if ((h > r ? h - r : r - h) > farthest_shift) continue;
        for (std::size_t length = 0; length < longest_shift && h + length < words_.size() &&
                                     r + length < reference_.size() &&
                                     words_[h + length] == reference_[r + length];) {
          if (!f(h, r, ++length)) return;
        }
      }
    }
  }

  WordNumbers words_;
  const WordNumbers& reference_;
  EditTable table_;
  std::size_t candidates_ = 0;
};

}  // namespace

double corpus_ter(std::span<const std::string> hypotheses, std::span<const std::string> references) {
  require_pairs(hypotheses, references);
  double edits = 0;
  double length = 0;
  for (std::size_t i = 0; i < hypotheses.size(); ++i) {
    Numbering numbering;
    const WordNumbers reference = numbering.words(references[i]);
    WordNumbers hypothesis = numbering.words(hypotheses[i]);
    length += static_cast<double>(reference.size());
    edits += reference.empty() ? static_cast<double>(hypothesis.size())
                               : static_cast<double>(Shifter(std::move(hypothesis), reference).run());
  }
  if (length == 0) return edits > 0 ? 100 : 0;
  return 100 * edits / length;
}

}  // namespace nmt
