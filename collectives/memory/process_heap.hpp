#pragma once

#include <cstddef>
#include <mutex>
#include <unordered_map>

#include "collectives/memory/mapping.hpp"

namespace ddl::collectives {

/// Blocks of this process's own memory, with the alignments of `Heap`. Any thread.
class ProcessHeap {
 public:
  /// Zeros; null if there is no more.
  [[nodiscard]] void* allocate(std::size_t bytes);
  /// Null is allowed.
  void release(void* data) noexcept;

 private:
  std::mutex mutex_;
  std::unordered_map<void*, Mapping> large_;
};

}  // namespace ddl::collectives
