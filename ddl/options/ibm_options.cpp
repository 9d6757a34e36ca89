#include "ddl/options/ibm_options.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ddl/error.hpp"
#include "ddl/nearest_name.hpp"
#include "ddl/options/option_table.hpp"

namespace ddl {
namespace {

std::vector<std::string_view> words_of(std::string_view text) {
  constexpr std::string_view space = " \t\r\n";
  std::vector<std::string_view> words;
  for (std::size_t at = text.find_first_not_of(space); at != std::string_view::npos;
       at = text.find_first_not_of(space, at)) {
    const std::size_t end = std::min(text.find_first_of(space, at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

std::vector<std::string_view> known_words() {
  std::vector<std::string_view> known;
  for (const Option& option : all_options()) {
    if (!option.word.empty()) known.push_back(option.word);
  }
  return known;
}

}  // namespace

std::vector<IbmOption> parse_ibm_options(std::string_view text, std::string_view origin) {
  const auto refuse = [&](const std::string& reason) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}='{}': {}", origin, text, reason));
  };
  const std::vector<std::string_view> known = known_words();
  const std::vector<std::string_view> words = words_of(text);
  std::vector<IbmOption> found;
  for (std::size_t i = 0; i < words.size(); i += 2) {
    const std::string_view word = words[i];
    if (std::ranges::find(known, word) == known.end()) {
      refuse(
          fmt::format("found '{}', expected an option; the nearest is {}", word, nearest_name(word, known)));
    }
    if (i + 1 == words.size()) refuse(fmt::format("{} needs a value", word));
    if (std::ranges::find(found, word, &IbmOption::first) != found.end()) {
      refuse(fmt::format("{} is given twice", word));
    }
    found.emplace_back(word, words[i + 1]);
  }
  return found;
}

bool set_mode(ContextOptions& options, std::string_view text) {
  const std::size_t colon = text.find(':');
  options.mode = topology::mode_from_letter(text.substr(0, colon));
  options.decomposition.clear();
  if (colon == std::string_view::npos) return true;
  options.decomposition = text.substr(colon + 1);
  const bool is_grid = !options.decomposition.empty() &&
                       options.decomposition.find_first_not_of("0123456789x,") == std::string::npos;
  if (is_grid) return true;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("found '{}' after the colon, expected the sizes of dimensions, as in p:4x8",
                          options.decomposition));
}

}  // namespace ddl
