#include "nmt_example/data/vocabulary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>

#include "ddl/error.hpp"
#include "nmt_example/data/line_reader.hpp"
#include "nmt_example/data/vocabulary_model.hpp"
#include "nmt_example/text/utf8.hpp"

namespace nmt {
namespace {

using ddl::Error;
using ddl::ErrorCode;

constexpr std::string_view magic = "ddl-nmt-vocabulary 1 ";
constexpr std::string_view sentencepiece_kind = "sentencepiece";
constexpr std::string_view bytes_kind = "bytes";

struct NamedJoining {
  WordJoining joining;
  std::string_view kind;
};
constexpr NamedJoining word_list_kinds[] = {{WordJoining::words, "words"},
                                            {WordJoining::bpe, "words-bpe"},
                                            {WordJoining::sentencepiece, "words-sentencepiece"}};

std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (!stream.is_open() || stream.bad() || std::filesystem::is_directory(path)) {
    throw Error(ErrorCode::io,
                fmt::format("{}: cannot be read: {}", path.string(),
                            std::filesystem::is_directory(path) ? "is a directory" : std::strerror(errno)));
  }
  return bytes;
}

[[noreturn]] void fail(std::string_view what) {
  throw Error(ErrorCode::corrupt_data,
              fmt::format("stored vocabulary: {}; the file is damaged or of another program version", what));
}

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return lines;
}

/// The number of the word of each part of a text; see `Vocabulary::word_numbers`.
std::vector<std::int32_t> numbers_of(std::span<const std::string> parts) {
  constexpr std::string_view ascii_blanks = " \t\r\n\v\f", blank = "\xE2\x96\x81";
  std::vector<std::int32_t> numbers;
  std::int32_t words = 0;
  bool within_word = false;
  for (const std::string& part : parts) {
    std::int32_t number = -1;
    for (std::size_t i = 0; i < part.size();) {
      const bool is_mark = part.compare(i, blank.size(), blank) == 0;
      const bool is_blank = is_mark || ascii_blanks.find(part[i]) != std::string_view::npos;
      if (!is_blank && !within_word) ++words;
      if (!is_blank && number < 0) number = words - 1;
      within_word = !is_blank;
      i += is_mark ? blank.size() : 1;
    }
    // A part without text belongs to what comes next.
    numbers.push_back(number >= 0 ? number : within_word ? words - 1 : words);
  }
  for (std::int32_t& number : numbers) number = std::min(number, std::max(words - 1, 0));
  return numbers;
}

}  // namespace

Vocabulary::Vocabulary(std::shared_ptr<const Model> model) : model_(std::move(model)) {}

Vocabulary Vocabulary::train(std::span<const std::string> lines, std::size_t size,
                             const VocabularyTraining& training) {
  const auto next = [lines, i = std::size_t{0}](std::string& line) mutable {
    if (i == lines.size()) return false;
    line = lines[i++];
    return true;
  };
  return train_on_lines(next, size, training);
}

Vocabulary Vocabulary::train_on_lines(const std::function<bool(std::string&)>& next, std::size_t size,
                                      const VocabularyTraining& training) {
  return from_sentencepiece(train_sentencepiece_model(next, size, training));
}

Vocabulary Vocabulary::from_sentencepiece(std::string_view serialized_model) {
  return Vocabulary(load_sentencepiece_model(serialized_model));
}

Vocabulary Vocabulary::from_sentencepiece_file(const std::filesystem::path& path,
                                               const SpecialWords& special) {
  const std::string bytes = read_bytes(path);
  if (bytes.find('\0') == std::string::npos) return from_word_list(path, WordJoining::sentencepiece, special);
  if (special != SpecialWords()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: is a SentencePiece model, which has special pieces of its own; leave out "
                            "--sos, --eos and --check_special_token",
                            path.string()));
  }
  try {
    return from_sentencepiece(bytes);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::corrupt_data) throw;
    throw Error(error.code(), fmt::format("{}: {}", path.string(), error.what()));
  }
}

Vocabulary Vocabulary::from_word_list(const std::filesystem::path& path, WordJoining joining,
                                      const SpecialWords& special) {
  return Vocabulary(make_word_list_model(read_lines(path), joining, special, path.string()));
}

Vocabulary Vocabulary::bytes_of_words() { return Vocabulary(make_byte_model()); }

bool Vocabulary::cut(std::vector<std::int32_t>& ids, std::size_t most) const {
  const std::size_t length = model_->length_of(ids, most);
  const bool is_longer = ids.size() > length;
  ids.resize(length);
  return is_longer;
}

std::vector<std::int32_t> Vocabulary::encode(std::string_view text) const { return model_->encode(text); }

std::string Vocabulary::decode(std::span<const std::int32_t> ids) const {
  for (const std::int32_t id : ids) {
    if (id < 0 || static_cast<std::size_t>(id) >= size()) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("id {} is not in the vocabulary; it has the ids 0 to {}", id, size() - 1));
    }
  }
  return model_->decode(ids);
}

std::string Vocabulary::join(std::string_view text) const { return model_->join(text); }

std::vector<std::int32_t> Vocabulary::word_numbers(std::string_view text) const {
  return numbers_of(model_->parts(text));
}

std::vector<std::int32_t> Vocabulary::word_numbers(std::span<const std::int32_t> ids) const {
  return numbers_of(model_->parts(ids));
}

std::optional<SubwordPieces> Vocabulary::subword_pieces() const { return model_->subword_pieces(); }

std::size_t Vocabulary::size() const noexcept { return model_->size(); }

std::string Vocabulary::piece(std::int32_t id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= size()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("id {} is not in the vocabulary; it has the ids 0 to {}", id, size() - 1));
  }
  return model_->piece(id);
}

std::string Vocabulary::serialize() const {
  const std::string payload = model_->payload();
  return fmt::format("{}{} {}\n", magic, model_->kind(), payload.size()) + payload;
}

Vocabulary Vocabulary::deserialize(std::string_view bytes) {
  if (!bytes.starts_with(magic)) fail("it does not start with \"ddl-nmt-vocabulary 1\"");
  bytes.remove_prefix(magic.size());
  const std::size_t line_end = bytes.find('\n');
  const std::string_view head = bytes.substr(0, line_end);
  const std::size_t blank = head.find(' ');
  if (line_end == std::string_view::npos || blank == std::string_view::npos)
    fail("its first line is cut off");
  const std::string_view kind = head.substr(0, blank);
  const std::string_view length = head.substr(blank + 1);
  const std::string_view payload = bytes.substr(line_end + 1);
  std::size_t expected = 0;
  const auto [end, code] = std::from_chars(length.data(), length.data() + length.size(), expected);
  if (code != std::errc() || end != length.data() + length.size()) fail("its first line gives no length");
  if (payload.size() != expected) fail(fmt::format("found {} bytes, expected {}", payload.size(), expected));
  if (kind == sentencepiece_kind) return from_sentencepiece(payload);
  if (kind == bytes_kind) {
    if (!payload.empty()) fail(fmt::format("found {} bytes, expected 0", payload.size()));
    return bytes_of_words();
  }
  for (const NamedJoining& known : word_list_kinds) {
    if (kind == known.kind) {
      if (!payload.ends_with('\n') || first_invalid_utf8(payload)) fail("its words are no lines of text");
      std::vector<std::string> words = split_lines(payload);
      if (words.size() < 3) fail(fmt::format("found {} words, expected at least 3", words.size()));
      const SpecialWords special{words[1], words[2], false};
      return Vocabulary(make_word_list_model(std::move(words), known.joining, special, "stored vocabulary"));
    }
  }
  fail(fmt::format("unknown kind \"{}\"", printable(kind)));
}

}  // namespace nmt
