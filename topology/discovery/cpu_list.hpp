#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddl::topology {

/// The kernel's list format: "0-3,8" is 0, 1, 2, 3, 8. Ascending, without repetition. Nothing if the text
/// is not such a list or names a CPU above 65,535; an empty text is an empty list.
std::optional<std::vector<int>> parse_cpu_list(std::string_view text);

/// `cpus` ascending.
std::string format_cpu_list(std::span<const int> cpus);

}  // namespace ddl::topology
