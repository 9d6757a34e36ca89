#pragma once

#include <memory>
#include <string_view>

namespace spdlog {
class logger;
}

namespace ddl {

/// Line-oriented log of one rank: "ddl [rank] level: message" on standard error.
/// Rank 0 writes everything its level allows; other ranks write errors only. Thread-safe.
class Log {
 public:
  /// `level`: 0 errors and warnings, 1 and information, 2 and debug lines.
  Log(int rank, int level);
  /// For a group of ranks: under the same rank's name, written in full if `is_root`, else errors only.
  [[nodiscard]] Log of_group(bool is_root) const;

  void error(std::string_view message);
  void warning(std::string_view message);
  /// Information that is written at every level: what the user must know though nothing is wrong.
  void notice(std::string_view message);
  void info(std::string_view message);
  void debug(std::string_view message);
  [[nodiscard]] bool debug_enabled() const noexcept;

 private:
  std::shared_ptr<spdlog::logger> logger_;
  int level_;
};

}  // namespace ddl
