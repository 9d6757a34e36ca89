#include "ddl/context/failure_files.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "ddl/checkpoint.hpp"
#include "ddl/context/signal_stack.hpp"
#include "ddl/error.hpp"

namespace ddl {
namespace {

// Global, because a signal handler gets no arguments of its own.
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
  wanted.sa_flags = SA_RESTART | SA_ONSTACK;
  ensure_signal_stack();
  sigaction(SIGUSR2, &wanted, nullptr);
  return dump_event;
}

/// Runs `work` and ignores exceptions, for instance out of memory. Nothing is lost: the errors that the ranks
/// throw carry the same text.
void quietly(const std::function<void()>& work) noexcept {
  try {
    work();
  } catch (const std::exception&) {
  }
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
  save(".json", [&] { return report.json() + "\n"; });
}

void FailureFiles::print(const collectives::ExitReport& report) const noexcept {
  quietly([&] { Log(rank_, 0).error("the job ends: " + report.text()); });
}

void FailureFiles::write(const std::vector<collectives::FlightRecord>& records) const noexcept {
  save(fmt::format(".rank{}.txt", rank_), [&] { return text_of(records); });
}

void FailureFiles::dump(const std::vector<collectives::FlightRecord>& records) const noexcept {
  if (!prefix_.empty()) return write(records);
  quietly([&] { Log(rank_, 0).error(text_of(records)); });
}

std::string FailureFiles::text_of(const std::vector<collectives::FlightRecord>& records) const {
  return fmt::format("flight recorder of rank {} (host {}, pid {}), the last {} collectives:\n{}", rank_,
                     host_, getpid(), records.size(), to_text(records));
}

void FailureFiles::save(const std::string& suffix, const std::function<std::string()>& text) const noexcept {
  if (prefix_.empty()) return;
  quietly([&] {
    try {
      write_file_atomically(prefix_ + suffix, text());
    } catch (const Error& error) {
      Log(rank_, 0).error(error.what());
    }
  });
}

}  // namespace ddl
