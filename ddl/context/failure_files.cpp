#include "ddl/context/failure_files.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "ddl/files/durable_file.hpp"

namespace ddl {
namespace {

// A signal's handler can reach nothing else.
volatile int dump_event = -1;

void ask_for_dump(int) {
  const int error = errno;
  const std::uint64_t one = 1;
  static_cast<void>(!::write(dump_event, &one, sizeof one));
  errno = error;
}

int install() {
  struct sigaction now {};
  if (sigaction(SIGUSR2, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) return -1;
  dump_event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (dump_event < 0) return -1;
  struct sigaction wanted {};
  wanted.sa_handler = ask_for_dump;
  wanted.sa_flags = SA_RESTART;
  sigaction(SIGUSR2, &wanted, nullptr);
  return dump_event;
}

}  // namespace

int flight_dump_event() {
  static const int event = install();
  return event;
}

FailureFiles::FailureFiles(std::string prefix, int rank, std::string host)
    : prefix_(std::move(prefix)), rank_(rank), host_(std::move(host)) {}

void FailureFiles::write(const collectives::ExitReport& report) const noexcept {
  print(report);
  try {
    if (!prefix_.empty()) save(prefix_ + ".json", report.json() + "\n");
  } catch (const std::exception&) {  // no memory
  }
}

void FailureFiles::print(const collectives::ExitReport& report) const noexcept {
  try {
    Log(rank_, 0).error("the job ends: " + report.text());
  } catch (const std::exception&) {  // no memory: the errors that the ranks throw say the same
  }
}

void FailureFiles::write(const std::vector<collectives::FlightRecord>& records) const noexcept {
  try {
    if (prefix_.empty()) return;
    save(fmt::format("{}.rank{}.txt", prefix_, rank_), heading(records.size()) + to_text(records));
  } catch (const std::exception&) {
  }
}

void FailureFiles::dump(const std::vector<collectives::FlightRecord>& records) const noexcept {
  if (!prefix_.empty()) return write(records);
  try {
    Log(rank_, 0).error(heading(records.size()) + to_text(records));
  } catch (const std::exception&) {
  }
}

std::string FailureFiles::heading(std::size_t records) const {
  return fmt::format("flight recorder of rank {} (host {}, pid {}), the last {} collectives:\n", rank_, host_,
                     getpid(), records);
}

void FailureFiles::save(const std::string& name, const std::string& text) const noexcept {
  try {
    FileWriter file(name);
    file.write(text);
    file.finish();
  } catch (const std::exception& error) {
    Log(rank_, 0).error(error.what());
  }
}

}  // namespace ddl
