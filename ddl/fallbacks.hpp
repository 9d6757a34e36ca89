#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "ddl/log.hpp"

namespace ddl {

/// What a job does in another way than it was asked to, or than it should, and why. Each is a warning, once,
/// or an error in strict mode (ContextOptions::strict). Any thread.
class Fallbacks {
 public:
  Fallbacks(Log& log, bool strict) : log_(log), strict_(strict) {}

  /// Throws `unsupported`, agreed, in strict mode: all ranks find the same ones, in the same order.
  void add(const std::string& what);
  [[nodiscard]] std::vector<std::string> all() const;

  /// In strict mode: throws if there are any.
  static void require_none(const std::vector<std::string>& found, bool strict);

 private:
  Log& log_;
  const bool strict_;
  mutable std::mutex mutex_;
  std::vector<std::string> all_;
};

}  // namespace ddl
