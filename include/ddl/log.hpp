#pragma once

#include <memory>
#include <string_view>

namespace spdlog {
class logger;
}

namespace ddl {

/// Line-oriented log of one rank: "ddl [rank] level: message" on standard error. Rank 0 writes everything
/// that its level allows; other ranks write errors only. Thread-safe.
class Log {
 public:
  /// `level`: 0 errors, warnings and notices, 1 also information, 2 also debug lines.
  Log(int rank, int level);
  /// For a group of ranks: under the same rank's name, written in full if `is_root`, else errors only.
  [[nodiscard]] Log of_group(bool is_root) const;

  /// Writes an error, on every rank.
  void error(std::string_view message);
  /// Writes a warning.
  void warning(std::string_view message);
  /// Writes information at every level: what the user must know although nothing is wrong.
  void notice(std::string_view message);
  /// Writes information from level 1 on.
  void info(std::string_view message);
  /// Writes a debug line at level 2.
  void debug(std::string_view message);
  /// Whether `debug` writes anything, so that callers can skip costly messages.
  [[nodiscard]] bool debug_enabled() const noexcept;

 private:
  std::shared_ptr<spdlog::logger> logger_;
  int level_;
};

}  // namespace ddl
