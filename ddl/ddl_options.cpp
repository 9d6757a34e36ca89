#include "ddl/ddl_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

#include "ddl/error.hpp"
#include "ddl/nearest_name.hpp"

namespace ddl {
namespace {

constexpr std::array<std::string_view, 3> known = {"-mode", "-dbg_level", "-dump_iter"};
constexpr std::array<std::string_view, 2> not_here = {"-dev_sync", "-rebind_iter"};

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

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  DdlOptions parse() {
    const std::vector<std::string_view> words = words_of(text_);
    for (std::size_t i = 0; i < words.size(); i += 2) {
      const std::string_view option = words[i];
      check_name(option);
      if (i + 1 == words.size()) refuse(fmt::format("{} needs a value", option));
      if (option == "-mode") {
        read_mode(words[i + 1]);
      } else if (option == "-dbg_level") {
        read_debug_level(words[i + 1]);
      } else {
        read_dump_iterations(words[i + 1]);
      }
    }
    return options_;
  }

 private:
  [[noreturn]] void refuse(const std::string& reason) const {
    throw Error(ErrorCode::invalid_argument, fmt::format("DDL_OPTIONS='{}': {}", text_, reason));
  }

  void check_name(std::string_view option) const {
    if (std::ranges::find(known, option) != known.end()) return;
    if (std::ranges::find(not_here, option) != not_here.end()) {
      refuse(fmt::format("{} is not available in this version; expected -mode, -dbg_level or -dump_iter",
                         option));
    }
    std::vector<std::string_view> names(known.begin(), known.end());
    names.insert(names.end(), not_here.begin(), not_here.end());
    refuse(fmt::format("found '{}', expected an option; the nearest is {}", option,
                       nearest_name(option, names)));
  }

  void read_mode(std::string_view value) {
    if (options_.mode) refuse("-mode is given twice");
    const std::size_t colon = value.find(':');
    try {
      options_.mode = topology::mode_from_letter(value.substr(0, colon));
    } catch (const Error& error) {
      refuse(fmt::format("-mode {}: {}", value, error.what()));
    }
    if (colon == std::string_view::npos) return;
    options_.decomposition = value.substr(colon + 1);
    const bool is_one = !options_.decomposition.empty() &&
                        options_.decomposition.find_first_not_of("0123456789x,") == std::string::npos;
    if (!is_one) {
      refuse(
          fmt::format("-mode {}: found '{}' after the colon, expected the sizes of dimensions, as in p:4x8",
                      value, options_.decomposition));
    }
  }

  void read_debug_level(std::string_view value) {
    if (options_.debug_level) refuse("-dbg_level is given twice");
    if (value.size() != 1 || value[0] < '0' || value[0] > '2') {
      refuse(fmt::format("-dbg_level: found '{}', expected 0, 1 or 2", value));
    }
    options_.debug_level = value[0] - '0';
  }

  void read_dump_iterations(std::string_view value) {
    if (options_.dump_iterations) refuse("-dump_iter is given twice");
    int iterations = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), iterations);
    if (error != std::errc{} || end != value.data() + value.size() || iterations < 0) {
      refuse(fmt::format("-dump_iter: found '{}', expected a number of steps, or 0 for never", value));
    }
    options_.dump_iterations = iterations;
  }

  std::string_view text_;
  DdlOptions options_;
};

}  // namespace

DdlOptions parse_ddl_options(std::string_view text) { return Parser(text).parse(); }

}  // namespace ddl
