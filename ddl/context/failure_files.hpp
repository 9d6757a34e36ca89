#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/watch/exit_report.hpp"
#include "collectives/watch/flight_recorder.hpp"
#include "ddl/error.hpp"
#include "ddl/files/durable_file.hpp"
#include "ddl/log.hpp"

namespace ddl {

/// Writes the reports of a failed job to standard error and to files whose names start with `prefix`
/// (ContextOptions::report). Errors of writing a file are logged. Any thread.
class FailureFiles {
 public:
  FailureFiles(std::string prefix, int rank, std::string host)
      : prefix_(std::move(prefix)), rank_(rank), host_(std::move(host)) {}

  /// Writes the exit report to PREFIX.json and to standard error.
  void write(const collectives::ExitReport& report) const noexcept {
    save(".json", [&] { return report.json() + "\n"; });
    print(report);
  }

  /// Writes it only to standard error: for the report of one rank that cannot reach rank 0.
  void print(const collectives::ExitReport& report) const noexcept {
    quietly([&] { Log(rank_, 0).error("the job ends: " + report.text()); });
  }

  /// Writes the flight recorder to PREFIX.rankN.txt.
  void write(const std::vector<collectives::FlightRecord>& records) const noexcept {
    save(fmt::format(".rank{}.txt", rank_), [&] { return text_of(records); });
  }

  /// The same, or to standard error without a prefix.
  void dump(const std::vector<collectives::FlightRecord>& records) const noexcept {
    if (!prefix_.empty()) return write(records);
    quietly([&] { Log(rank_, 0).error(text_of(records)); });
  }

 private:
  /// Runs `work` and ignores exceptions, for instance out of memory. Nothing is lost: the errors that the
  /// ranks throw carry the same text.
  static void quietly(const std::function<void()>& work) noexcept {
    try {
      work();
    } catch (const std::exception&) {
    }
  }

  [[nodiscard]] std::string text_of(const std::vector<collectives::FlightRecord>& records) const {
    return fmt::format("flight recorder of rank {} (host {}, pid {}), the last {} collectives:\n{}", rank_,
                       host_, getpid(), records.size(), to_text(records));
  }

  /// Does not sync the file: Open MPI's launcher kills the remaining ranks a second after one has died, and
  /// syncing to a busy disk may take longer.
  void save(const std::string& suffix, const std::function<std::string()>& text) const noexcept {
    if (prefix_.empty()) return;
    quietly([&] {
      try {
        FileWriter(prefix_ + suffix).write(text());
      } catch (const Error& error) {
        Log(rank_, 0).error(error.what());
      }
    });
  }

  std::string prefix_;
  int rank_;
  std::string host_;
};

}  // namespace ddl
