#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "ddl/context.hpp"

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
  if (const char* text = std::getenv("DDL_PLAN")) {
    options.plan = text;
    if (options.plan != "auto" && options.plan != "ring" && options.plan != "hierarchical") {
      refuse("DDL_PLAN", text, "auto, ring or hierarchical");
    }
  }
  if (const char* text = std::getenv("DDL_DEBUG_LEVEL")) {
    if (!parse(std::string_view(text), options.debug_level) || options.debug_level < 0 ||
        options.debug_level > 2) {
      refuse("DDL_DEBUG_LEVEL", text, "0, 1 or 2");
    }
  }
  return options;
}

}  // namespace ddl
