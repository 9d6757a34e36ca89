#pragma once

#include <functional>
#include <string>
#include <vector>

#include "collectives/watch/exit_report.hpp"
#include "collectives/watch/flight_recorder.hpp"
#include "ddl/log.hpp"

namespace ddl {

/// Writes the reports of a failed job to standard error and to files whose names start with `prefix`
/// (ContextOptions::report). Errors of writing a file are logged. Any thread.
class FailureFiles {
 public:
  FailureFiles(std::string prefix, int rank, std::string host);

  /// Writes the exit report to standard error and to PREFIX.json.
  void write(const collectives::ExitReport& report) const noexcept;
  /// Writes it only to standard error: for the report of one rank that cannot reach rank 0.
  void print(const collectives::ExitReport& report) const noexcept;
  /// Writes the flight recorder to PREFIX.rankN.txt.
  void write(const std::vector<collectives::FlightRecord>& records) const noexcept;
  /// The same, or to standard error without a prefix.
  void dump(const std::vector<collectives::FlightRecord>& records) const noexcept;

 private:
  [[nodiscard]] std::string text_of(const std::vector<collectives::FlightRecord>& records) const;
  void save(const std::string& suffix, const std::function<std::string()>& text) const noexcept;

  std::string prefix_;
  int rank_;
  std::string host_;
};

/// Returns an eventfd that is signalled whenever this process gets SIGUSR2; -1 if the program has its own
/// handler for it, or if the system refuses. Any thread; the handler stays for the life of the process.
int flight_dump_event();

}  // namespace ddl
