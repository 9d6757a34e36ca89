#include "ddl/context/process_bootstrap.hpp"

#include <fmt/format.h>

#include <thread>

#include "ddl/error.hpp"

namespace ddl {

std::unique_ptr<collectives::Network> ProcessBootstrap::make_mpi_network() {
  throw Error(
      ErrorCode::unsupported,
      "messages are to go through MPI (DDL_NETWORK=mpi, a plan that needs it, or UCX is not to be had), but "
      "this job was started without it: start it with mpirun")
      .as_agreed();
}

void ProcessBootstrap::throw_reported() {
  watch_->stopped("");
  throw Error(ErrorCode::peer_failed, "while the ranks met: " + watch_->report().text());
}

void ProcessBootstrap::look(TimePoint until, const std::string& exchange, const std::string& missing) {
  if (idle_) idle_();
  if (watch_ && watch_->failed()) throw_reported();
  if (collectives::Clock::now() < until) return;
  std::string text = fmt::format(
      "while the ranks met ({}): {} within {:g} s on rank {}. It is stuck or slow (a longer deadline: "
      "DDL_DEADLINE, in seconds), or has not made a Context",
      exchange, missing, static_cast<double>(deadline_.count()) / 1000, rank());
  if (watch_) {
    watch_->announce({collectives::JobFailure::Kind::stuck, rank(), text, 0, 0});
    text = watch_->report().text();
  }
  throw Error(ErrorCode::timeout, text);
}

void ProcessBootstrap::throw_gone(const std::string& text) {
  constexpr auto time_to_notice = std::chrono::milliseconds(200);
  const TimePoint until = collectives::Clock::now() + time_to_notice;
  while (watch_ && collectives::Clock::now() < until) {
    if (watch_->failed()) throw_reported();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  throw Error(ErrorCode::peer_failed, "while the ranks met: " + text);
}

}  // namespace ddl
