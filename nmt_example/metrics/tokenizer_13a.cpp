#include "nmt_example/metrics/tokenizer_13a.hpp"

#include <cstddef>
#include <cstdint>

#include "nmt_example/text/white_space.hpp"

namespace nmt {
namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_period_or_comma(char c) { return c == '.' || c == ','; }
bool stands_alone(char c) {
  return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') ||
         (c >= '(' && c <= '+') || (c >= ':' && c <= '@') || c == '/';
}

/// Replaces each pair of neighbours that `matches`, from the left and without overlap. The bytes of a
/// character outside ASCII are neither digits nor punctuation, so bytes can stand for characters.
template <typename Matches>
std::string rewrite_pairs(std::string_view text, Matches matches, std::string_view before,
                          std::string_view between, std::string_view after) {
  std::string result;
  result.reserve(text.size() * 2);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i + 1 < text.size() && matches(text[i], text[i + 1])) {
      result.append(before).append(1, text[i]).append(between).append(1, text[i + 1]).append(after);
      ++i;
    } else {
      result += text[i];
    }
  }
  return result;
}

std::vector<std::string> split_at_white_space(std::string_view text) {
  std::vector<std::string> tokens;
  std::size_t begin = 0;
  std::size_t i = 0;
  while (i < text.size()) {
    const std::size_t space = white_space_at(text.substr(i));
    if (space == 0) {
      ++i;
      continue;
    }
    if (i > begin) tokens.emplace_back(text.substr(begin, i - begin));
    i += space;
    begin = i;
  }
  if (i > begin) tokens.emplace_back(text.substr(begin, i - begin));
  return tokens;
}

}  // namespace

std::vector<std::string> tokenize_13a(std::string_view text) {
  std::string line(stripped(text));
  replace_all(line, "<skipped>", "");
  replace_all(line, "-\n", "");
  replace_all(line, "\n", " ");
  replace_all(line, "&quot;", "\"");
  replace_all(line, "&amp;", "&");
  replace_all(line, "&lt;", "<");
  replace_all(line, "&gt;", ">");

  std::string padded = " ";
  for (const char c : line) {
    if (stands_alone(c)) {
      padded.append(1, ' ').append(1, c).append(1, ' ');
    } else {
      padded += c;
    }
  }
  padded += ' ';
  padded = rewrite_pairs(
      padded, [](char a, char b) { return !is_digit(a) && is_period_or_comma(b); }, "", " ", " ");
  padded = rewrite_pairs(
      padded, [](char a, char b) { return is_period_or_comma(a) && !is_digit(b); }, " ", " ", "");
  padded = rewrite_pairs(
      padded, [](char a, char b) { return is_digit(a) && b == '-'; }, "", " ", " ");
  return split_at_white_space(padded);
}

}  // namespace nmt
