#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ddl::collectives {

struct StringHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const noexcept { return std::hash<std::string_view>()(text); }
};
using NumberByName = std::unordered_map<std::string, std::uint32_t, StringHash, std::equal_to<>>;

/// Gives names numbers, from 0 on. Any thread.
class NameTable {
 public:
  /// Number 0 is that of all names for which there is no room.
  NameTable(std::size_t most, std::string_view others) : most_(most) { number(others); }

  std::uint32_t number(std::string_view name) {
    const std::lock_guard lock(mutex_);
    if (const auto found = numbers_.find(name); found != numbers_.end()) return found->second;
    if (names_.size() == most_) return 0;
    const auto number = static_cast<std::uint32_t>(names_.size());
    names_.emplace_back(name);
    numbers_.emplace(name, number);
    return number;
  }
  [[nodiscard]] std::vector<std::string> names() const {
    const std::lock_guard lock(mutex_);
    return names_;
  }

 private:
  const std::size_t most_;
  mutable std::mutex mutex_;
  std::vector<std::string> names_;
  NumberByName numbers_;
};

}  // namespace ddl::collectives
