#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "ddl/context.hpp"
#include "ddl/ddl_options.hpp"
#include "ddl/durable_file.hpp"

namespace ddl {
namespace {

[[noreturn]] void refuse(const char* variable, std::string_view value, const char* expected) {
  throw Error(ErrorCode::invalid_argument, fmt::format("{}='{}': expected {}", variable, value, expected));
}

/// The whole of `text` as a number.
template <typename T>
bool parse(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

bool read_switch(const char* variable, bool otherwise) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return otherwise;
  int value = 0;
  if (!parse(std::string_view(text), value) || value < 0 || value > 1) refuse(variable, text, "0 or 1");
  return value == 1;
}

ProbeUse read_probe_use(std::string_view text) {
  if (text == "off") return ProbeUse::off;
  if (text == "cached") return ProbeUse::cached;
  if (text == "on") return ProbeUse::on;
  refuse("DDL_PROBE", text, "off, cached or on");
}

NetworkUse read_network_use(std::string_view text) {
  if (text == "auto") return NetworkUse::automatic;
  if (text == "ucx") return NetworkUse::ucx;
  if (text == "mpi") return NetworkUse::mpi;
  refuse("DDL_NETWORK", text, "auto, ucx or mpi");
}

/// Empty if the environment names no place.
std::string find_cache_directory() {
  const auto value = [](const char* name) -> std::string {
    const char* text = std::getenv(name);
    return text == nullptr ? "" : text;
  };
  if (std::string directory = value("DDL_CACHE_DIR"); !directory.empty()) return directory;
  if (const std::string caches = value("XDG_CACHE_HOME"); !caches.empty()) return caches + "/ddl";
  if (const std::string home = value("HOME"); !home.empty()) return home + "/.cache/ddl";
  return {};
}

/// `names` are files' names with commas between.
std::vector<topology::Plan> read_plans(std::string_view names) {
  constexpr std::uint64_t largest_file = std::uint64_t{256} << 20;
  std::vector<topology::Plan> plans;
  for (;;) {
    const std::size_t comma = names.find(',');
    const std::string name(names.substr(0, comma));
    if (name.empty()) {
      refuse("DDL_PLAN", names, "files of plans with commas between (which plans compete: DDL_OPTIONS)");
    }
    try {
      const FileReader file(name);
      if (file.size() > largest_file) throw_corrupt(name, fmt::format("{} bytes", file.size()), "a plan");
      plans.push_back(topology::plan_from_json(file.read_all(), name));
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("DDL_PLAN='{}': {}", name, error.what()));
    }
    if (comma == std::string_view::npos) return plans;
    names.remove_prefix(comma + 1);
  }
}

}  // namespace

ContextOptions ContextOptions::from_environment() {
  ContextOptions options;
  if (const char* text = std::getenv("DDL_DEADLINE")) {
    constexpr double longest = 1e9;
    double seconds = 0;
    if (!parse(std::string_view(text), seconds) || !(seconds >= 0.001 && seconds <= longest)) {
      refuse("DDL_DEADLINE", text, "seconds from 0.001 to 1e9");
    }
    options.deadline = std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
  }
  if (const char* text = std::getenv("DDL_HOST_ID")) {
    if (*text == '\0') refuse("DDL_HOST_ID", text, "a name, or no such variable");
    options.host_id = text;
  }
  if (const char* text = std::getenv("DDL_PLAN")) options.plans = read_plans(text);
  if (const char* text = std::getenv("DDL_TOPOLOGY")) {
    if (*text == '\0') refuse("DDL_TOPOLOGY", text, "a preset or a file, or no such variable");
    options.topology = text;
  }
  options.strict = read_switch("DDL_STRICT", options.strict);
  options.reproducible = read_switch("DDL_REPRODUCIBLE", options.reproducible);
  if (const char* text = std::getenv("DDL_REPORT")) {
    if (*text == '\0') refuse("DDL_REPORT", text, "the start of files' names, or no such variable");
    options.report = text;
  }
  if (const char* text = std::getenv("DDL_TIMELINE")) {
    if (*text == '\0') refuse("DDL_TIMELINE", text, "a file's name, or no such variable");
    options.timeline = text;
  }
  if (const char* text = std::getenv("DDL_TIMELINE_EVENTS")) {
    constexpr std::size_t most = std::size_t{1} << 30;
    if (!parse(std::string_view(text), options.timeline_events) || options.timeline_events < 1 ||
        options.timeline_events > most) {
      refuse("DDL_TIMELINE_EVENTS", text, "events, from 1 to 2^30");
    }
  }
  if (const char* text = std::getenv("DDL_NETWORK")) options.network = read_network_use(text);
  const char* const probe = std::getenv("DDL_PROBE");
  options.probe = probe == nullptr ? ProbeUse::cached : read_probe_use(probe);
  options.cache_directory = find_cache_directory();
  if (const char* text = std::getenv("DDL_DEBUG_LEVEL")) {
    if (!parse(std::string_view(text), options.debug_level) || options.debug_level < 0 ||
        options.debug_level > 2) {
      refuse("DDL_DEBUG_LEVEL", text, "0, 1 or 2");
    }
  }
  if (const char* text = std::getenv("DDL_OPTIONS")) {
    const DdlOptions given = parse_ddl_options(text);
    options.mode = given.mode.value_or(options.mode);
    options.decomposition = given.decomposition;
    options.debug_level = given.debug_level.value_or(options.debug_level);
    options.dump_iterations = given.dump_iterations.value_or(options.dump_iterations);
  }
  return options;
}

}  // namespace ddl
