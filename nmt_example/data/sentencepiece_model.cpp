#include <fmt/format.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <limits>
#include <map>
#include <queue>
#include <set>
#include <unordered_map>

#include "ddl/error.hpp"
#include "ddl/hash.hpp"
#include "nmt_example/data/normalization_rules.hpp"
#include "nmt_example/data/vocabulary_model.hpp"
#include "nmt_example/text/utf8.hpp"

namespace nmt {
namespace {

using ddl::Error;
using ddl::ErrorCode;

/// SentencePiece's ids, renumbered so that <unk>, <s>, </s> are 0, 1, 2; missing <s> or </s> are added.
class SentencePieceModel final : public Vocabulary::Model {
 public:
  explicit SentencePieceModel(std::string_view serialized) {
    if (!load(serialized)) {
      throw Error(
          ErrorCode::corrupt_data,
          fmt::format("found {} bytes that are no SentencePiece model, expected those of a .model file that "
                      "spm_train wrote; copy it again or train a new one",
                      serialized.size()));
    }
    const int pieces = processor_.GetPieceSize();
    theirs_ = {processor_.unk_id(), processor_.bos_id(), processor_.eos_id()};
    for (int id = 0; id < pieces; ++id) {
      if (std::find(theirs_.begin(), theirs_.begin() + 3, id) == theirs_.begin() + 3) theirs_.push_back(id);
    }
    ours_.resize(static_cast<std::size_t>(pieces));
    for (std::size_t id = 0; id < theirs_.size(); ++id) {
      if (theirs_[id] >= 0) ours_[static_cast<std::size_t>(theirs_[id])] = static_cast<std::int32_t>(id);
    }
  }

  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<int> ids;
    const auto status = processor_.Encode(absl::string_view(text.data(), text.size()), &ids);
    check(status);
    for (int& id : ids) id = ours_[static_cast<std::size_t>(id)];
    return ids;
  }

  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const override {
    std::vector<int> theirs;
    theirs.reserve(ids.size());
    for (const std::int32_t id : ids) {
      if (id != Vocabulary::bos_id && id != Vocabulary::eos_id)
        theirs.push_back(theirs_[static_cast<std::size_t>(id)]);
    }
    std::string text;
    const auto status = processor_.Decode(theirs, &text);
    check(status);
    // Pieces of single bytes can be line breaks.
    std::ranges::replace_if(
        text, [](char c) { return c == '\n' || c == '\r'; }, ' ');
    return text;
  }

  [[nodiscard]] std::vector<std::string> parts(std::string_view text) const override {
    std::vector<std::string> pieces;
    const auto status = processor_.Encode(absl::string_view(text.data(), text.size()), &pieces);
    check(status);
    return pieces;
  }
  [[nodiscard]] std::vector<std::string> parts(std::span<const std::int32_t> ids) const override {
    std::vector<std::string> parts;
    for (const std::int32_t id : ids) {
      parts.emplace_back(id == Vocabulary::unk_id ? " ? "
                         : id > Vocabulary::eos_id
                             ? processor_.IdToPiece(theirs_[static_cast<std::size_t>(id)])
                             : std::string());
    }
    return parts;
  }

  [[nodiscard]] std::optional<SubwordPieces> subword_pieces() const override {
    SubwordPieces pieces;
    std::vector<std::vector<int>> best;
    // Only unigram models have it.
    if (!processor_.NBestEncode("a", 1, &best).ok()) pieces.type = SubwordType::bpe;
    for (std::size_t id = 0; id < theirs_.size(); ++id) {
      const int piece = theirs_[id];
      const bool is_text = id > Vocabulary::eos_id && !processor_.IsControl(piece) &&
                           !processor_.IsByte(piece) && !processor_.IsUnused(piece);
      pieces.scores.push_back(is_text ? processor_.GetScore(piece)
                                      : std::numeric_limits<double>::quiet_NaN());
    }
    return pieces;
  }
  [[nodiscard]] std::size_t size() const noexcept override { return theirs_.size(); }
  [[nodiscard]] std::string piece(std::int32_t id) const override {
    constexpr const char* special[] = {"<unk>", "<s>", "</s>"};
    if (id <= Vocabulary::eos_id) return special[id];
    return processor_.IdToPiece(theirs_[static_cast<std::size_t>(id)]);
  }
  [[nodiscard]] std::string kind() const override { return "sentencepiece"; }
  [[nodiscard]] std::string payload() const override { return processor_.serialized_model_proto(); }

 private:
  static void check(const sentencepiece::util::Status& status) {
    if (status.ok()) return;
    throw Error(ErrorCode::corrupt_data,
                fmt::format("the SentencePiece model is damaged: {}", printable(status.message())));
  }

  /// Returns false if it is no model.
  bool load(std::string_view serialized) try {
    return has_sound_normalization_rules(serialized) &&
           processor_.LoadFromSerializedProto(absl::string_view(serialized.data(), serialized.size())).ok() &&
           processor_.unk_id() >= 0;
  } catch (const std::exception&) {  // of the library's tries
    return false;
  }

  sentencepiece::SentencePieceProcessor processor_;
  std::vector<int> theirs_;         // by this class's id; -1: the model has no such piece
  std::vector<std::int32_t> ours_;  // by SentencePiece's id
};

constexpr std::size_t longest_line = 4192;  // SentencePiece's own limit in training

/// The lines to train on, in their order; if there are too many, those with the smallest hashes.
class ChosenLines {
 public:
  explicit ChosenLines(const VocabularyTraining& training) : training_(training) {}

  void add(const std::string& line) {
    const std::size_t number = lines_++;
    if (line.size() > longest_line || line.find_first_not_of(" \t") == std::string::npos) return;
    const std::uint64_t hash = ddl::mix(ddl::mix(training_.seed) ^ number);
    if (chosen_.size() == training_.max_sentences) {
      if (hash >= by_hash_.top().first) return;
      chosen_.erase(by_hash_.top().second);
      by_hash_.pop();
    }
    by_hash_.emplace(hash, number);
    chosen_.emplace(number, line);
  }

  /// That were added.
  [[nodiscard]] std::size_t lines() const noexcept { return lines_; }
  [[nodiscard]] const std::map<std::size_t, std::string>& chosen() const noexcept { return chosen_; }

 private:
  VocabularyTraining training_;
  std::size_t lines_ = 0;
  std::map<std::size_t, std::string> chosen_;                           // by number
  std::priority_queue<std::pair<std::uint64_t, std::size_t>> by_hash_;  // hashes and numbers of all chosen
};

class SentencesOf final : public sentencepiece::SentenceIterator {
 public:
  explicit SentencesOf(const std::map<std::size_t, std::string>& lines)
      : next_(lines.begin()), end_(lines.end()) {}

  [[nodiscard]] bool done() const override { return next_ == end_; }
  void Next() override { ++next_; }
  [[nodiscard]] const std::string& value() const override { return next_->second; }
  [[nodiscard]] sentencepiece::util::Status status() const override { return {}; }

 private:
  std::map<std::size_t, std::string>::const_iterator next_, end_;
};

std::size_t count_characters(const std::map<std::size_t, std::string>& lines) {
  std::set<std::string_view> characters = {"\xE2\x96\x81"};
  for (const auto& [number, text] : lines) {
    for (std::size_t i = 0; i < text.size();) {
      std::size_t length = 1;
      while (i + length < text.size() && (static_cast<unsigned char>(text[i + length]) & 0xC0) == 0x80)
        ++length;
      if (text[i] != ' ') characters.insert(std::string_view(text).substr(i, length));
      i += length;
    }
  }
  return characters.size();
}

}  // namespace

std::shared_ptr<const Vocabulary::Model> load_sentencepiece_model(std::string_view serialized) {
  return std::make_shared<SentencePieceModel>(serialized);
}

std::string train_sentencepiece_model(const std::function<bool(std::string&)>& next, std::size_t size,
                                      const VocabularyTraining& training) {
  ChosenLines lines(training);
  for (std::string line; next(line);) lines.add(line);
  if (lines.chosen().empty()) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("no text to train a vocabulary on: none of the {} lines has between 1 and {} bytes",
                    lines.lines(), longest_line));
  }
  const std::size_t needed = count_characters(lines.chosen()) + 3;
  if (size <= needed || size > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format(
            "a vocabulary of {} pieces is impossible: the text has {} different characters, so it takes "
            "at least {} (and at most 2^31-1); set --vocab_size",
            size, needed - 3, needed + 1));
  }
  const std::unordered_map<std::string, std::string> settings = {
      {"vocab_size", std::to_string(size)},
      {"model_type", training.type == SubwordType::unigram ? "unigram" : "bpe"},
      {"character_coverage", "1.0"},
      {"normalization_rule_name", "identity"},
      {"hard_vocab_limit", "false"},
      {"byte_fallback", "false"},
      // The order of floating-point sums depends on the number of threads, so that number is fixed.
      {"num_threads", "2"},
      {"minloglevel", "2"},
  };
  SentencesOf iterator(lines.chosen());
  std::string serialized;
  const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &iterator, &serialized);
  if (!status.ok()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("training a vocabulary of {} pieces on {} lines failed: {}", size,
                            lines.chosen().size(), status.message()));
  }
  return serialized;
}

}  // namespace nmt
