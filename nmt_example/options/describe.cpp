#include <fmt/core.h>

#include "nmt_example/options/flag_table.hpp"
#include "nmt_example/options/options.hpp"

namespace nmt {

std::string describe_options(const Options& options) {
  const Options defaults;
  std::string text;
  const Flag* previous = nullptr;
  for (const Flag& flag : all_flags()) {
    if (flag.group == FlagGroup::command) continue;
    if (previous == nullptr || previous->group != flag.group) text += fmt::format("{}\n", title(flag.group));
    previous = &flag;
    const std::string value = value_text(flag, options);
    text += fmt::format("{} {:<25} {}\n", value == value_text(flag, defaults) ? ' ' : '*', flag.name,
                        value.empty() ? "\"\"" : value);
  }
  return text;
}

}  // namespace nmt
