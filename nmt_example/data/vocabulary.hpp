#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nmt {

/// What SentencePiece puts before a word: U+2581.
inline constexpr std::string_view word_start = "\xE2\x96\x81";

/// How SentencePiece chooses its pieces.
enum class SubwordType { unigram, bpe };

/// What a SentencePiece model chooses a split by.
struct SubwordPieces {
  SubwordType type = SubwordType::unigram;
  /// By id. Of a unigram model, logarithms of probabilities; of a BPE model, the higher the earlier a merge
  /// is made. NaN for pieces that do not stand for a text of their own: special ones, and bytes.
  std::vector<double> scores;
};

/// How the entries of a word list are joined to text.
enum class WordJoining {
  words,         ///< One word an entry, joined with blanks.
  bpe,           ///< subword-nmt: an entry ending in "@@" continues in the next.
  sentencepiece  ///< An entry starting with U+2581 starts a word; the rest continues it.
};

/// The special words of a word list, as tensorflow/nmt's flags of these names.
struct SpecialWords {
  std::string sos = "<s>";
  std::string eos = "</s>";
  /// Whether <unk>, sos and eos are put before a list that does not start with them. Otherwise its first word
  /// stands for unknown ones, and the other two must be in it.
  bool check_special_token = true;

  friend bool operator==(const SpecialWords&, const SpecialWords&) = default;
};

struct VocabularyTraining {
  SubwordType type = SubwordType::unigram;
  /// Chooses the sentences to train on if there are more than `max_sentences`.
  std::uint64_t seed = 1;
  std::size_t max_sentences = 1'000'000;
};

/// Turns text into ids and back. Ids 0, 1, 2 are <unk>, <s>, </s>, whatever model is loaded.
///
/// Text is not normalised, except that repeated blanks become one: SentencePiece's default (NFKC) rewrites
/// characters (the ellipsis becomes "...", the sign for one half becomes a fraction of three characters), so
/// output could never equal a raw reference that has them. With subwords, decode(encode(x)) == x for every x
/// of known characters with single blanks between words.
///
/// Immutable and cheap to copy; `const` calls may run in several threads at once.
class Vocabulary {
 public:
  static constexpr std::int32_t unk_id = 0;
  static constexpr std::int32_t bos_id = 1;
  static constexpr std::int32_t eos_id = 2;

  /// Trains a SentencePiece model on raw text, silently and in memory. The same lines and settings give
  /// the same vocabulary on every run. `size` counts the three special pieces; a text too small for it
  /// gives a smaller vocabulary. Throws `invalid_argument` if `lines` hold no text or `size` has no room
  /// for the characters of the text (the message gives the number needed).
  static Vocabulary train(std::span<const std::string> lines, std::size_t size,
                          const VocabularyTraining& training = {});
  /// The same of lines that `next` gives one by one, until it returns false. Memory: the lines that are
  /// chosen.
  static Vocabulary train_on_lines(const std::function<bool(std::string& line)>& next, std::size_t size,
                                   const VocabularyTraining& training = {});

  /// A trained SentencePiece model (the bytes of a .model file). Its ids are renumbered if its special pieces
  /// have other ids. Throws `corrupt_data`.
  static Vocabulary from_sentencepiece(std::string_view serialized_model);
  /// A trained model, or a list of the pieces that text is already split into, as of tensorflow/nmt: a file
  /// with a NUL byte is a model. Throws as `from_sentencepiece` or `from_word_list`, and `invalid_argument`
  /// if a model, which has special pieces of its own, is given special words.
  static Vocabulary from_sentencepiece_file(const std::filesystem::path& path,
                                            const SpecialWords& special = {});

  /// A word list, one word per line, whose special words get the ids 0, 1, 2. Text to encode is split at
  /// blanks. Throws `io`, or `corrupt_data` (an empty file, an empty line, a blank in a word, a repeated
  /// word: both lines are named; a special word that is missing).
  static Vocabulary from_word_list(const std::filesystem::path& path,
                                   WordJoining joining = WordJoining::words,
                                   const SpecialWords& special = {});

  /// The bytes of words (tensorflow/nmt's use_char_encode): each word is a mark, its first 48 bytes, and
  /// another mark. 261 ids.
  static Vocabulary bytes_of_words();

  /// The ids of a line, without <s> and </s>; unknown words or characters are <unk>.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const;
  /// Cuts encoded text to `most` ids, or words if they are encoded as bytes. Returns whether it was longer.
  bool cut(std::vector<std::int32_t>& ids, std::size_t most) const;
  /// The text of ids, one line: pieces that are line breaks become blanks. <s> and </s> are left out
  /// everywhere; <unk> becomes a visible mark ("<unk>" with a word list, U+2047 between blanks with
  /// SentencePiece). Throws `invalid_argument` for an id out of range.
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const;

  /// The text of a line that is split into entries as in the files that a word list belongs to, joined as
  /// `decode` joins them; words that are not in the list are kept. Other models split text themselves: the
  /// line as it is.
  [[nodiscard]] std::string join(std::string_view text) const;

  /// Of each id of `encode(text)`, or of `ids` in `decode(ids)`, the number of its word, from 0; words are
  /// what stands between blanks once entries are joined. That of the next word for ids that are blanks, and
  /// the last word's if there is none.
  [[nodiscard]] std::vector<std::int32_t> word_numbers(std::string_view text) const;
  [[nodiscard]] std::vector<std::int32_t> word_numbers(std::span<const std::int32_t> ids) const;

  /// None unless it is a SentencePiece model.
  [[nodiscard]] std::optional<SubwordPieces> subword_pieces() const;

  [[nodiscard]] std::size_t size() const noexcept;
  [[nodiscard]] std::string piece(std::int32_t id) const;
  [[nodiscard]] static constexpr std::int32_t unk() noexcept { return unk_id; }
  [[nodiscard]] static constexpr std::int32_t bos() noexcept { return bos_id; }
  [[nodiscard]] static constexpr std::int32_t eos() noexcept { return eos_id; }

  /// The whole vocabulary as bytes that name their own format; for a checkpoint.
  [[nodiscard]] std::string serialize() const;
  /// Throws `corrupt_data` for anything that `serialize` did not write.
  static Vocabulary deserialize(std::string_view bytes);

  class Model;

 private:
  explicit Vocabulary(std::shared_ptr<const Model> model);
  std::shared_ptr<const Model> model_;
};

}  // namespace nmt
