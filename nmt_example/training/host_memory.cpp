#include "nmt_example/training/host_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>

#include "ddl/error.hpp"

namespace nmt {
namespace {

namespace fs = std::filesystem;

/// The number in a file; none if there is no such file, or another text such as "max".
std::optional<std::size_t> number_in(const fs::path& path) {
  std::ifstream file(path);
  std::size_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

/// The number after a name in a file of such lines, 0 if it is missing.
std::size_t entry_of(const fs::path& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    std::size_t number = 0;
    if (word == name && file >> number) return number;
  }
  return 0;
}

/// This process's control group of version 2, as a path below their root; empty: none.
fs::path control_group(const fs::path& root) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::/")) return line.substr(4);
  }
  return {};
}

}  // namespace

HostMemory host_memory(const fs::path& root) {
  const fs::path info = root / "proc/meminfo";
  constexpr std::size_t kilobyte = 1024;
  HostMemory memory{(entry_of(info, "MemTotal:") + entry_of(info, "SwapTotal:")) * kilobyte,
                    entry_of(info, "MemAvailable:") * kilobyte};
  if (memory.available == 0) {
    throw ddl::Error(ddl::ErrorCode::io,
                     fmt::format("{} does not say how much memory is available", info.string()));
  }
  const fs::path groups = root / "sys/fs/cgroup";
  for (fs::path group = control_group(root);; group = group.parent_path()) {
    const fs::path directory = groups / group;
    if (const auto most = number_in(directory / "memory.max")) {
      const std::size_t used = number_in(directory / "memory.current").value_or(0);
      const std::size_t cached = entry_of(directory / "memory.stat", "inactive_file");
      memory.total = std::min(memory.total, *most);
      memory.available = std::min(memory.available, *most - std::min(*most, used - std::min(used, cached)));
    }
    if (group.empty()) return memory;
  }
}

}  // namespace nmt
