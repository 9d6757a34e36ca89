#pragma once

#include <cstddef>
#include <filesystem>

namespace nmt {

/// Memory of this host, or of the control group that this process is in where that has less, in bytes.
struct HostMemory {
  std::size_t total = 0;      ///< With swap space.
  std::size_t available = 0;  ///< Without swapping: free, or caches that can be dropped.
};

/// As Linux says under `root` (/proc/meminfo, and control groups of version 2). Throws `io` if it does not.
HostMemory host_memory(const std::filesystem::path& root = "/");

}  // namespace nmt
