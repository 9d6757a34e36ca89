#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include "ddl/options.hpp"
#include "ddl/options/option_table.hpp"
#include "topology/json_text.hpp"
#include "topology/refuse.hpp"
#include "topology/text.hpp"

namespace ddl {
namespace {

/// Variables that are read elsewhere: by the start-up without mpirun, libddl_mpi, ddl.py, and this project's
/// scripts and tests.
constexpr std::array<std::string_view, 10> other_variables = {
    "DDL_OPTIONS", "DDL_OTHERS", "DDL_SOCKET", "DDL_MPI_SERVE", "DDL_MPI_MEMORY",
    "DDL_LIBRARY", "DDL_BIN",    "DDL_NMT",    "DDL_RANKS",     "DDL_FAULT_MARK",
};
constexpr std::array<std::string_view, 4> other_beginnings = {"DDL_TEST_", "DDL_FAKE_", "DDL_FUZZ_",
                                                              "DDL_EMULATED"};

std::string variable(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? "" : text;
}

/// Empty if neither XDG_CACHE_HOME nor HOME is set.
std::string usual_cache_directory() {
  if (const std::string caches = variable("XDG_CACHE_HOME"); !caches.empty()) return caches + "/ddl";
  if (const std::string home = variable("HOME"); !home.empty()) return home + "/.cache/ddl";
  return {};
}

ContextOptions usual_options() {
  ContextOptions options;
  options.probe = ProbeUse::cached;
  options.cache_directory = usual_cache_directory();
  return options;
}

/// The values of the member `name` of all options, without empty ones.
std::vector<std::string_view> all_of(std::string_view Option::*name) {
  std::vector<std::string_view> names;
  for (const Option& option : all_options()) {
    if (!(option.*name).empty()) names.push_back(option.*name);
  }
  return names;
}

class Sources {
 public:
  Sources(std::string_view flags, std::string_view flags_origin) {
    read_variables();
    if (const char* const text = std::getenv("DDL_OPTIONS")) read_words(text, "DDL_OPTIONS");
    read_words(flags, flags_origin);
  }

  [[nodiscard]] const ContextOptions& options() const noexcept { return options_; }
  [[nodiscard]] std::string origin_of(const Option& option) const {
    const auto known = origins_.find(option.name);
    return known == origins_.end() ? "default" : known->second;
  }

 private:
  /// Sets an option from `text`. `before`: prefix of error messages.
  void set(const Option& option, std::string_view text, const std::string& origin,
           const std::string& before) {
    bool is_right = false;
    try {
      is_right = option.value.set(options_, text);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}: {}", before, error.what()));
    }
    if (!is_right) {
      fail_with(ErrorCode::invalid_argument, "{}: found {}, expected {}", before, topology::in_quotes(text),
                option.expected);
    }
    origins_[option.name] = origin;
  }

  void read_variables() {
    require_known_variables();
    for (const Option& option : all_options()) {
      if (option.variable.empty()) continue;
      const std::string name(option.variable);
      if (const char* const text = std::getenv(name.c_str())) set(option, text, name, name);
    }
  }

  /// Refuses unknown variables that begin with DDL_, because a misspelt one would be ignored silently.
  static void require_known_variables() {
    std::vector<std::string_view> known = all_of(&Option::variable);
    known.insert(known.begin(), other_variables.begin(), other_variables.end());
    const std::string others = fmt::format(",{},", variable("DDL_OTHERS"));
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
      const std::string_view text = *entry;
      const std::string_view name = text.substr(0, text.find('='));
      if (!name.starts_with("DDL_") || std::ranges::find(known, name) != known.end()) continue;
      if (std::ranges::any_of(other_beginnings,
                              [&](std::string_view begin) { return name.starts_with(begin); }))
        continue;
      if (others.find(fmt::format(",{},", name)) != std::string::npos) continue;
      fail_with(ErrorCode::invalid_argument,
                "the environment has {}, which this library does not know; the nearest is {} (ddl-topo env "
                "lists all). If it is another program's: DDL_OTHERS={}",
                name, nearest_name(name, known), name);
    }
  }

  /// Reads options in IBM's spelling: "-mode p:4x4 -dbg_level 2 -dump_iter 100".
  void read_words(std::string_view text, std::string_view origin) {
    const auto refuse = [&](const std::string& reason) {
      fail_with(ErrorCode::invalid_argument, "{}={}: {}", origin, topology::in_quotes(text), reason);
    };
    std::set<std::string> seen;
    std::istringstream words{std::string(text)};
    for (std::string word, value; words >> word;) {
      const auto known = std::ranges::find(all_options(), word, &Option::word);
      if (known == all_options().end()) {
        refuse(fmt::format("found {}, expected an option; the nearest is {}", topology::in_quotes(word),
                           nearest_name(word, all_of(&Option::word))));
      }
      if (!(words >> value)) refuse(fmt::format("{} needs a value", word));
      if (!seen.insert(word).second) refuse(fmt::format("{} is given twice", word));
      set(*known, value, std::string(origin),
          fmt::format("{}={}: {}", origin, topology::in_quotes(text), word));
    }
  }

  ContextOptions options_ = usual_options();
  std::map<std::string_view, std::string> origins_;
};

}  // namespace

ContextOptions ContextOptions::from_environment(std::string_view flags, std::string_view flags_origin) {
  return Sources(flags, flags_origin).options();
}

std::vector<OptionSetting> option_settings(std::string_view flags, std::string_view flags_origin) {
  const Sources sources(flags, flags_origin);
  const ContextOptions usual = usual_options();
  std::vector<OptionSetting> settings;
  for (const Option& option : all_options()) {
    settings.push_back({.name = std::string(option.name),
                        .variable = std::string(option.variable),
                        .word = std::string(option.word),
                        .value = option.value.get(sources.options()),
                        .default_value = option.value.get(usual),
                        .origin = sources.origin_of(option),
                        .expected = std::string(option.expected),
                        .help = std::string(option.help)});
  }
  return settings;
}

}  // namespace ddl
