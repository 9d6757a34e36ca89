#include "nmt_example/text/white_space.hpp"

namespace nmt {

std::size_t white_space_at(std::string_view text) {
  const auto byte = [&](std::size_t i) -> unsigned { return static_cast<unsigned char>(text[i]); };
  if (text.empty()) return 0;
  const unsigned first = byte(0);
  if (first == ' ' || (first >= 0x09 && first <= 0x0D) || (first >= 0x1C && first <= 0x1F)) return 1;
  if (first == 0xC2 && text.size() >= 2) return byte(1) == 0x85 || byte(1) == 0xA0 ? 2 : 0;
  if (text.size() < 3 || first < 0xE1 || first > 0xE3) return 0;
  const unsigned code = (first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  const bool space = code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
                     code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
  return space ? 3 : 0;
}

std::string_view stripped(std::string_view text) {
  while (const std::size_t space = white_space_at(text)) text.remove_prefix(space);
  std::size_t end = 0;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t space = white_space_at(text.substr(i));
    i += space == 0 ? 1 : space;
    if (space == 0) end = i;
  }
  return text.substr(0, end);
}

std::vector<std::string_view> split_at_each_blank(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t blank = text.find(' ');
    parts.push_back(text.substr(0, blank));
    if (blank == std::string_view::npos) return parts;
    text.remove_prefix(blank + 1);
  }
}

}  // namespace nmt
