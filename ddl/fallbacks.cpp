#include "ddl/fallbacks.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ddl/error.hpp"

namespace ddl {

void Fallbacks::add(const std::string& what) {
  require_none({what}, strict_);
  const std::lock_guard lock(mutex_);
  if (std::ranges::find(all_, what) != all_.end()) return log_.debug("again: " + what);
  all_.push_back(what);
  log_.warning(what);
}

std::vector<std::string> Fallbacks::all() const {
  const std::lock_guard lock(mutex_);
  return all_;
}

void Fallbacks::require_none(const std::vector<std::string>& found, bool strict) {
  if (!strict || found.empty()) return;
  throw Error(
      ErrorCode::unsupported,
      fmt::format("DDL_STRICT=1, and there is no other way: {}. Mend that, or allow it (DDL_STRICT=0)",
                  found.front()))
      .as_agreed();
}

}  // namespace ddl
