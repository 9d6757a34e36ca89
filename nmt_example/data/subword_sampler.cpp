#include "nmt_example/data/subword_sampler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ddl/error.hpp"

namespace nmt {
namespace {

/// Where the character after the one at `i` begins.
std::size_t next_character(std::string_view text, std::size_t i) {
  do ++i;
  while (i < text.size() && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80);
  return i;
}

SubwordPieces pieces_of(const Vocabulary& vocabulary, double strength) {
  std::optional<SubwordPieces> pieces = vocabulary.subword_pieces();
  if (!pieces) {
    throw ddl::Error(ddl::ErrorCode::unsupported,
                     "--subword_sampling: needs SentencePiece models, which know other ways to split a word; "
                     "found a list of words; leave the flag out, or --vocab_prefix");
  }
  if (pieces->type == SubwordType::bpe && strength > 1) {
    throw ddl::Error(ddl::ErrorCode::invalid_argument,
                     fmt::format("--subword_sampling={}: with a BPE model it is the probability that a merge "
                                 "is left out; expected at most 1",
                                 strength));
  }
  return std::move(*pieces);
}

}  // namespace

double SampleRandom::next() noexcept {
  const auto words = philox({sample_, drawn_++, 0, 0}, key_);
  return std::ldexp(static_cast<double>(std::uint64_t{words[0]} << 21 ^ words[1] >> 11), -53);
}

SubwordSampler::SubwordSampler(const Vocabulary& vocabulary, double strength)
    : pieces_(pieces_of(vocabulary, strength)), strength_(strength) {
  texts_.reserve(vocabulary.size());
  for (std::size_t id = 0; id < vocabulary.size(); ++id)
    texts_.push_back(vocabulary.piece(static_cast<std::int32_t>(id)));
  for (std::size_t id = 0; id < texts_.size(); ++id) {
    if (!is_text(static_cast<std::int32_t>(id))) continue;
    ids_.emplace(texts_[id], static_cast<std::int32_t>(id));
    longest_ = std::max(longest_, texts_[id].size());
  }
}

bool SubwordSampler::is_text(std::int32_t id) const {
  return !std::isnan(pieces_.scores[static_cast<std::size_t>(id)]);
}

void SubwordSampler::split(std::span<const std::int32_t> ids, SampleRandom random,
                           std::vector<std::int32_t>& out) {
  out.clear();
  for (std::size_t begin = 0, end = 0; begin < ids.size(); begin = end) {
    do ++end;
    while (end < ids.size() && !texts_[static_cast<std::size_t>(ids[end])].starts_with(word_start));
    split_word(ids.subspan(begin, end - begin), random, out);
  }
}

void SubwordSampler::split_word(std::span<const std::int32_t> ids, SampleRandom& random,
                                std::vector<std::int32_t>& out) {
  if (!std::ranges::all_of(ids, [&](std::int32_t id) { return is_text(id); })) {
    out.insert(out.end(), ids.begin(), ids.end());
    return;
  }
  word_.clear();
  for (const std::int32_t id : ids) word_ += texts_[static_cast<std::size_t>(id)];
  if (pieces_.type == SubwordType::bpe) return sample_bpe(word_, random, out);
  auto found = lattices_.find(word_);
  if (found == lattices_.end()) {
    if (lattices_.size() >= most_words) lattices_.clear();
    found = lattices_.emplace(word_, lattice_of(word_)).first;
  }
  sample_unigram(found->second, random, out);
}

/// The forward pass: the weight of all splits of the word's first bytes, relative to the best, in logarithms.
SubwordSampler::Lattice SubwordSampler::lattice_of(std::string_view word) const {
  Lattice lattice(word.size() + 1);
  std::vector<double> weights(word.size() + 1, -std::numeric_limits<double>::infinity());
  weights[0] = 0;
  for (std::size_t end = next_character(word, 0); end <= word.size(); end = next_character(word, end)) {
    std::vector<Last>& lasts = lattice[end];
    for (std::size_t begin = end > longest_ ? end - longest_ : 0; begin < end; ++begin) {
      if (std::isinf(weights[begin])) continue;
      const auto piece = ids_.find(word.substr(begin, end - begin));
      if (piece == ids_.end()) continue;
      const double score = pieces_.scores[static_cast<std::size_t>(piece->second)];
      lasts.push_back({static_cast<std::uint32_t>(begin), piece->second, weights[begin] + strength_ * score});
    }
    if (lasts.empty()) continue;
    const double most = std::ranges::max_element(lasts, {}, &Last::up_to)->up_to;
    double sum = 0;
    for (Last& last : lasts) last.up_to = sum += std::exp(last.up_to - most);
    for (Last& last : lasts) last.up_to /= sum;
    weights[end] = most + std::log(sum);
  }
  return lattice;
}

/// The backward pass, from the word's end.
void SubwordSampler::sample_unigram(const Lattice& lattice, SampleRandom& random,
                                    std::vector<std::int32_t>& out) {
  const auto first = static_cast<std::ptrdiff_t>(out.size());
  for (std::size_t end = lattice.size() - 1; end > 0;) {
    const std::vector<Last>& lasts = lattice[end];
    const double number = lasts.size() > 1 ? random.next() : 0;
    const auto last = std::ranges::find_if(lasts.begin(), lasts.end() - 1,
                                           [&](const Last& piece) { return number < piece.up_to; });
    out.push_back(last->id);
    end = last->begin;
  }
  std::reverse(out.begin() + first, out.end());
}

void SubwordSampler::sample_bpe(std::string_view word, SampleRandom& random, std::vector<std::int32_t>& out) {
  ends_.clear();
  for (std::size_t end = 0; end < word.size();) {
    end = next_character(word, end);
    ends_.push_back(static_cast<std::uint32_t>(end));
  }
  const auto begin_of = [&](std::size_t i) { return i == 0 ? 0 : ends_[i - 1]; };
  while (true) {
    double best = -std::numeric_limits<double>::infinity();
    std::size_t chosen = ends_.size();
    for (std::size_t i = 0; i + 1 < ends_.size(); ++i) {
      const auto piece = ids_.find(word.substr(begin_of(i), ends_[i + 1] - begin_of(i)));
      if (piece == ids_.end() || random.next() < strength_) continue;
      const double score = pieces_.scores[static_cast<std::size_t>(piece->second)];
      if (score <= best) continue;
      best = score;
      chosen = i;
    }
    if (chosen == ends_.size()) break;
    ends_.erase(ends_.begin() + static_cast<std::ptrdiff_t>(chosen));
  }
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    const auto piece = ids_.find(word.substr(begin_of(i), ends_[i] - begin_of(i)));
    out.push_back(piece != ids_.end() ? piece->second : Vocabulary::unk_id);
  }
}

}  // namespace nmt
