#include "ddl/plan_log.hpp"

#include <fmt/format.h>

#include <string>

namespace ddl {

collectives::PlanObserver log_plans(Log& log, Fallbacks& fallbacks) {
  return [&log, &fallbacks](const topology::Plan& plan, const std::vector<std::string>& notes) {
    for (const std::string& note : notes) fallbacks.add(note);
    if (!log.debug_enabled()) {
      log.info(fmt::format("plan: {}", summary(plan)));
      return;
    }
    const std::string text = to_text(plan);
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      log.debug(fmt::format("{}{}", begin == 0 ? "plan: " : "", text.substr(begin, end - begin)));
      begin = end + 1;
    }
  };
}

}  // namespace ddl
