#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>

#include "ddl/error.hpp"
#include "nmt_example/data/vocabulary_model.hpp"
#include "nmt_example/text/utf8.hpp"

namespace nmt {
namespace {

using ddl::Error;
using ddl::ErrorCode;

constexpr std::string_view unknown_word = "<unk>";
constexpr std::size_t special_count = 3;

class WordListModel final : public Vocabulary::Model {
 public:
  WordListModel(std::vector<std::string> words, std::unordered_map<std::string, std::int32_t> ids,
                WordJoining joining)
      : words_(std::move(words)), ids_(std::move(ids)), joining_(joining) {}

  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> result;
    for (const std::string_view word : split(text)) {
      const auto found = ids_.find(std::string(word));
      result.push_back(found == ids_.end() ? Vocabulary::unk_id : found->second);
    }
    return result;
  }

  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const override {
    std::vector<std::string_view> words;
    for (const std::int32_t id : ids) {
      if (id != Vocabulary::bos_id && id != Vocabulary::eos_id)
        words.push_back(words_[static_cast<std::size_t>(id)]);
    }
    return joined(words);
  }

  [[nodiscard]] std::string join(std::string_view text) const override {
    return joining_ == WordJoining::words ? std::string(text) : joined(split(text));
  }

  [[nodiscard]] std::vector<std::string> parts(std::string_view text) const override {
    return parts_of(split(text));
  }
  [[nodiscard]] std::vector<std::string> parts(std::span<const std::int32_t> ids) const override {
    std::vector<std::string_view> words;
    for (const std::int32_t id : ids) words.push_back(words_[static_cast<std::size_t>(id)]);
    return parts_of(words);
  }

  [[nodiscard]] std::size_t size() const noexcept override { return words_.size(); }
  [[nodiscard]] std::string piece(std::int32_t id) const override {
    return words_[static_cast<std::size_t>(id)];
  }
  [[nodiscard]] std::string kind() const override {
    switch (joining_) {
      case WordJoining::words:
        return "words";
      case WordJoining::bpe:
        return "words-bpe";
      case WordJoining::sentencepiece:
        return "words-sentencepiece";
    }
    return "words";
  }
  [[nodiscard]] std::string payload() const override { return fmt::format("{}\n", fmt::join(words_, "\n")); }

 private:
  static std::vector<std::string_view> split(std::string_view text) {
    std::vector<std::string_view> words;
    while (true) {
      const std::size_t begin = text.find_first_not_of(blanks);
      if (begin == std::string_view::npos) return words;
      text.remove_prefix(begin);
      words.push_back(text.substr(0, text.find_first_of(blanks)));
      text.remove_prefix(words.back().size());
    }
  }

  /// What each entry adds to the text, with a blank first where it starts a word.
  [[nodiscard]] std::vector<std::string> parts_of(std::span<const std::string_view> words) const {
    std::vector<std::string> parts;
    bool continues = false;
    for (std::string_view word : words) {
      bool starts_word = !continues;
      if (joining_ == WordJoining::bpe) {
        continues = word.ends_with("@@");
        if (continues) word.remove_suffix(2);
      } else if (joining_ == WordJoining::sentencepiece) {
        starts_word = word.starts_with(word_start);
        if (starts_word) word.remove_prefix(word_start.size());
      }
      parts.push_back(std::string(starts_word ? " " : "").append(word));
    }
    return parts;
  }

  [[nodiscard]] std::string joined(std::span<const std::string_view> words) const {
    std::string text;
    for (const std::string& part : parts_of(words)) text += part;
    return text.erase(0, std::min(text.find_first_not_of(' '), text.size()));
  }

  std::vector<std::string> words_;
  std::unordered_map<std::string, std::int32_t> ids_;
  WordJoining joining_;
};

/// Moves sos and eos behind the first word.
void move_special_words(std::vector<std::string>& words, const SpecialWords& special,
                        const std::string& name) {
  auto place = words.begin() + 1;
  for (const std::string* word : {&special.sos, &special.eos}) {
    const auto found = std::find(place, words.end(), *word);
    if (found == words.end()) {
      throw Error(ErrorCode::corrupt_data,
                  fmt::format("{}: \"{}\" is not in the list after its first word, which stands for unknown "
                              "words; add it, name another with --sos or --eos, or leave out "
                              "--check_special_token=false",
                              name, printable(*word)));
    }
    std::rotate(place, found, found + 1);
    ++place;
  }
}

}  // namespace

std::shared_ptr<const Vocabulary::Model> make_word_list_model(std::vector<std::string> words,
                                                              WordJoining joining,
                                                              const SpecialWords& special,
                                                              const std::string& name) {
  if (words.empty()) {
    throw Error(ErrorCode::corrupt_data,
                fmt::format("{}: the word list is empty; expected one word per line", name));
  }
  const std::array<std::string, special_count> special_words = {std::string(unknown_word), special.sos,
                                                                special.eos};
  const bool complete =
      !special.check_special_token || (words.size() >= special_count &&
                                       std::equal(special_words.begin(), special_words.end(), words.begin()));
  if (!complete) words.insert(words.begin(), special_words.begin(), special_words.end());
  const auto line_of = [&](std::size_t index) { return complete ? index + 1 : index + 1 - special_count; };

  std::unordered_map<std::string, std::int32_t> ids;
  ids.reserve(words.size());
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.empty()) {
      throw Error(ErrorCode::corrupt_data,
                  fmt::format("{}:{}: empty line; expected one word", name, line_of(i)));
    }
    if (word.find_first_of(blanks) != std::string::npos) {
      throw Error(ErrorCode::corrupt_data,
                  fmt::format("{}:{}: blank within \"{}\"; expected one word per line", name, line_of(i),
                              printable(word)));
    }
    const auto [earlier, is_new] = ids.emplace(word, static_cast<std::int32_t>(i));
    if (is_new) continue;
    const auto first = static_cast<std::size_t>(earlier->second);
    if (!complete && first < special_count) {
      throw Error(ErrorCode::corrupt_data,
                  fmt::format("{}:{}: \"{}\" is a special word; a list that has it must start with the lines "
                              "{}, {}, {}, or be given with --check_special_token=false",
                              name, line_of(i), printable(word), unknown_word, printable(special.sos),
                              printable(special.eos)));
    }
    throw Error(ErrorCode::corrupt_data,
                fmt::format("{}:{}: \"{}\" is already in line {}; every word must be there once", name,
                            line_of(i), printable(word), line_of(first)));
  }
  if (!special.check_special_token) {
    move_special_words(words, special, name);
    for (std::size_t i = 0; i < words.size(); ++i) ids[words[i]] = static_cast<std::int32_t>(i);
  }
  return std::make_shared<WordListModel>(std::move(words), std::move(ids), joining);
}

}  // namespace nmt
