#include <fmt/format.h>

#include <algorithm>

#include "nmt_example/data/vocabulary_model.hpp"

namespace nmt {
namespace {

constexpr std::int32_t word_begin = 3;
constexpr std::int32_t word_end = 4;
constexpr std::int32_t first_byte = 5;
constexpr std::size_t longest_word = 48;  // tensorflow/nmt's 50, less the two marks

class ByteModel final : public Vocabulary::Model {
 public:
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    while (true) {
      const std::size_t begin = text.find_first_not_of(blanks);
      if (begin == std::string_view::npos) return ids;
      text.remove_prefix(begin);
      const std::string_view word = text.substr(0, text.find_first_of(blanks));
      ids.push_back(word_begin);
      for (const char c : word.substr(0, longest_word)) {
        ids.push_back(first_byte + static_cast<std::int32_t>(static_cast<unsigned char>(c)));
      }
      ids.push_back(word_end);
      text.remove_prefix(word.size());
    }
  }

  [[nodiscard]] std::size_t length_of(std::span<const std::int32_t> ids, std::size_t most) const override {
    std::size_t words = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (words == most) return i;
      if (ids[i] == word_end) ++words;
    }
    return ids.size();
  }

  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    for (const std::int32_t id : ids) {
      if (id == word_begin && !text.empty()) text += ' ';
      if (id >= first_byte) text += static_cast<char>(id - first_byte);
    }
    std::ranges::replace_if(
        text, [](char c) { return c == '\n' || c == '\r'; }, ' ');
    return text;
  }

  [[nodiscard]] std::vector<std::string> parts(std::string_view text) const override {
    return parts(encode(text));
  }
  [[nodiscard]] std::vector<std::string> parts(std::span<const std::int32_t> ids) const override {
    std::vector<std::string> parts;
    for (const std::int32_t id : ids) {
      parts.emplace_back(id == word_begin   ? " "
                         : id >= first_byte ? std::string(1, static_cast<char>(id - first_byte))
                                            : std::string());
    }
    return parts;
  }

  [[nodiscard]] std::size_t size() const noexcept override { return first_byte + 256; }
  [[nodiscard]] std::string piece(std::int32_t id) const override {
    constexpr const char* special[] = {"<unk>", "<s>", "</s>", "<w>", "</w>"};
    return id < first_byte ? special[id] : fmt::format("<0x{:02X}>", id - first_byte);
  }
  [[nodiscard]] std::string kind() const override { return "bytes"; }
  [[nodiscard]] std::string payload() const override { return ""; }
};

}  // namespace

std::shared_ptr<const Vocabulary::Model> make_byte_model() { return std::make_shared<ByteModel>(); }

}  // namespace nmt
