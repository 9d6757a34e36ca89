#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nmt_example/data/vocabulary.hpp"

namespace nmt {

/// What separates words.
inline constexpr std::string_view blanks = " \t\r\n\v\f";

/// The implementation of a `Vocabulary`.
class Vocabulary::Model {
 public:
  virtual ~Model() = default;
  [[nodiscard]] virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  /// The length of the first `most` units of encoded text.
  [[nodiscard]] virtual std::size_t length_of(std::span<const std::int32_t> ids, std::size_t most) const {
    return std::min(ids.size(), most);
  }
  /// `ids` are in range.
  [[nodiscard]] virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  [[nodiscard]] virtual std::string join(std::string_view text) const { return std::string(text); }
  /// The text that each id of `encode(text)` stands for, with blanks before the words, where U+2581 is one.
  [[nodiscard]] virtual std::vector<std::string> parts(std::string_view text) const = 0;
  /// The same of each id in `decode(ids)`.
  [[nodiscard]] virtual std::vector<std::string> parts(std::span<const std::int32_t> ids) const = 0;
  [[nodiscard]] virtual std::optional<SubwordPieces> subword_pieces() const { return {}; }
  [[nodiscard]] virtual std::size_t size() const noexcept = 0;
  /// `id` is in range.
  [[nodiscard]] virtual std::string piece(std::int32_t id) const = 0;
  /// The name of the loader in serialized bytes.
  [[nodiscard]] virtual std::string kind() const = 0;
  [[nodiscard]] virtual std::string payload() const = 0;
};

/// Throws `corrupt_data`.
std::shared_ptr<const Vocabulary::Model> load_sentencepiece_model(std::string_view serialized);
/// Throws `invalid_argument`. Returns the serialized model.
std::string train_sentencepiece_model(const std::function<bool(std::string& line)>& next, std::size_t size,
                                      const VocabularyTraining& training);
/// Checks the words; `name` identifies their file in messages. Throws `corrupt_data`.
std::shared_ptr<const Vocabulary::Model> make_word_list_model(std::vector<std::string> words,
                                                              WordJoining joining,
                                                              const SpecialWords& special,
                                                              const std::string& name);
std::shared_ptr<const Vocabulary::Model> make_byte_model();

}  // namespace nmt
