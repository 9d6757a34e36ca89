#include "nmt_example/data/normalization_rules.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace nmt {
namespace {

/// Calls `is_sound(number, value)` for the fields of a protocol-buffers message that are texts or messages.
/// Returns false if one is not, or if the bytes are no message.
template <typename IsSound>
bool all_fields(std::string_view message, IsSound is_sound) {
  const auto read_number = [&](std::uint64_t& number) {
    number = 0;
    for (int shift = 0; shift < 64 && !message.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(message.front());
      message.remove_prefix(1);
      number |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return true;
    }
    return false;
  };
  while (!message.empty()) {
    std::uint64_t tag = 0, size = 0;
    if (!read_number(tag)) return false;
    const auto type = tag & 7;
    if ((type == 0 || type == 2) && !read_number(size)) return false;
    if (type == 0) continue;
    if (type == 1) size = 8;
    if (type == 5) size = 4;
    if ((type != 1 && type != 2 && type != 5) || size > message.size()) return false;
    if (type == 2 && !is_sound(tag >> 3, message.substr(0, size))) return false;
    message.remove_prefix(size);
  }
  return true;
}

/// A unit of the double array of Darts-clone.
struct Unit {
  std::uint32_t bits;
  /// That of no byte if it is the number of a text.
  [[nodiscard]] std::uint32_t label() const { return bits & 0x800000FF; }
  [[nodiscard]] bool has_text() const { return (bits >> 8 & 1) != 0; }
  [[nodiscard]] std::size_t offset() const { return (bits >> 10) << ((bits & 0x200) >> 6); }
  [[nodiscard]] std::size_t text() const { return bits & 0x7FFFFFFF; }
};

/// The size of a trie, the trie as a double array, and texts that each end with a NUL byte.
bool are_sound(std::string_view rules) {
  const auto word_at = [&](std::size_t at) {
    std::uint32_t word = 0;
    for (std::size_t i = 4; i-- > 0;) word = word << 8 | static_cast<unsigned char>(rules[at + i]);
    return word;
  };
  if (rules.empty()) return true;
  constexpr std::size_t block = 256;  // of units, of which a search goes from one block to another
  if (rules.size() <= 4 || rules.back() != '\0') return false;
  const std::size_t size = word_at(0);
  rules.remove_prefix(4);
  if (size == 0 || size % (4 * block) != 0 || size >= rules.size()) return false;
  std::vector<Unit> units;
  for (std::size_t at = 0; at < size; at += 4) units.push_back({word_at(at)});
  const std::size_t texts = rules.size() - size;

  // Follows all searches. At each place, the most rules that a search may have found before, plus 1: the
  // results have room for so many.
  constexpr unsigned char most_found = 32;
  std::vector<unsigned char> found(units.size(), 0);
  std::vector<std::size_t> waiting;
  const auto reach = [&](std::size_t place, unsigned char count) {
    if (place >= units.size() || count > most_found + 1) return false;
    if (found[place] >= count) return true;
    found[place] = count;
    waiting.push_back(place);
    return true;
  };
  if (!reach(units[0].offset(), 1)) return false;
  while (!waiting.empty()) {
    const std::size_t place = waiting.back();
    waiting.pop_back();
    for (std::size_t byte = 0; byte < block; ++byte) {
      const std::size_t at = place ^ byte;
      const Unit unit = units[at];
      if (unit.label() != byte) continue;
      const std::size_t next = at ^ unit.offset();
      const auto count = static_cast<unsigned char>(found[place] + (unit.has_text() ? 1 : 0));
      if (!reach(next, count) || (unit.has_text() && units[next].text() >= texts)) return false;
    }
  }
  return true;
}

}  // namespace

bool has_sound_normalization_rules(std::string_view model) {
  constexpr std::uint64_t normalizer = 3, denormalizer = 5, compiled_rules = 2;
  return all_fields(model, [](std::uint64_t number, std::string_view part) {
    if (number != normalizer && number != denormalizer) return true;
    return all_fields(part, [](std::uint64_t inner, std::string_view value) {
      return inner != compiled_rules || are_sound(value);
    });
  });
}

}  // namespace nmt
