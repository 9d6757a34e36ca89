#pragma once

#include <functional>
#include <string>
#include <vector>

#include "collectives/watch/exit_report.hpp"
#include "collectives/watch/flight_recorder.hpp"
#include "ddl/log.hpp"

namespace ddl {

/// What a failed job leaves behind: files whose names start with `prefix` (ContextOptions::report), and
/// standard error. Any thread. A file that cannot be written is told of there.
class FailureFiles {
 public:
  FailureFiles(std::string prefix, int rank, std::string host);

  /// To standard error, and PREFIX.json.
  void write(const collectives::ExitReport& report) const noexcept;
  /// To standard error alone: of one rank, where there is nobody to gather all.
  void print(const collectives::ExitReport& report) const noexcept;
  /// To PREFIX.rankN.txt.
  void write(const std::vector<collectives::FlightRecord>& records) const noexcept;
  /// To that file, or to standard error without a prefix.
  void dump(const std::vector<collectives::FlightRecord>& records) const noexcept;

 private:
  [[nodiscard]] std::string text_of(const std::vector<collectives::FlightRecord>& records) const;
  void save(const std::string& suffix, const std::function<std::string()>& text) const noexcept;

  std::string prefix_;
  int rank_;
  std::string host_;
};

/// An eventfd that is written to whenever this process gets SIGUSR2; -1 if the program has a handler of its
/// own for it, or the system refuses. Any thread; the handler stays for the life of the process.
int flight_dump_event();

}  // namespace ddl
