#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "collectives/system/bootstrap.hpp"
#include "collectives/system/fail_agreed.hpp"
#include "collectives/transports/network/network.hpp"
#include "collectives/watch/watch.hpp"

namespace ddl {

/// Bootstrap for ranks that are processes. Waits for peers end with the deadline or when the watch reports a
/// failure.
class ProcessBootstrap : public collectives::Bootstrap {
 public:
  explicit ProcessBootstrap(std::chrono::milliseconds deadline) : deadline_(deadline) {}

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return size_; }
  void set_idle(std::function<void()> idle) override { idle_ = std::move(idle); }
  /// Sets the watch that reports deaths of other ranks from now on.
  void set_watch(std::shared_ptr<collectives::Watch> watch) { watch_ = std::move(watch); }
  /// Makes a network to all ranks through MPI, which must be destroyed before this object. Collective. Throws
  /// `unsupported`, agreed, if the job was not started by MPI.
  virtual std::unique_ptr<collectives::Network> make_mpi_network() {
    fail_agreed(ErrorCode::unsupported,
                "messages are to go through MPI (DDL_NETWORK=mpi, a plan that needs it, or UCX is not to be "
                "had), but "
                "this job was started without it: start it with mpirun");
  }

 protected:
  using TimePoint = collectives::Clock::time_point;
  [[nodiscard]] TimePoint due() const { return collectives::Clock::now() + deadline_; }
  /// To be called repeatedly while waiting. Throws `peer_failed` once the watch reports a failure of the job,
  /// and `timeout` after `until`: "while the ranks met (`exchange`): `missing`".
  void look(TimePoint until, const std::string& exchange, const std::string& missing) {
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

  /// Throws `peer_failed` for a lost connection, with the report of the watch if it comes soon, else `text`.
  [[noreturn]] void throw_gone(const std::string& text) {
    constexpr auto time_to_notice = std::chrono::milliseconds(200);
    const TimePoint until = collectives::Clock::now() + time_to_notice;
    while (watch_ && collectives::Clock::now() < until) {
      if (watch_->failed()) throw_reported();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    throw Error(ErrorCode::peer_failed, "while the ranks met: " + text);
  }

  int rank_ = 0;
  int size_ = 1;
  int exchanges_ = 0;  // number of all_gather calls, for messages

 private:
  [[noreturn]] void throw_reported() {
    watch_->stopped("");
    throw Error(ErrorCode::peer_failed, "while the ranks met: " + watch_->report().text());
  }

  std::chrono::milliseconds deadline_;
  std::shared_ptr<collectives::Watch> watch_;
  std::function<void()> idle_;
};

// Jobs without MPI: processes of one machine to which RANK and WORLD_SIZE are set, as by PyTorch's launchers,
// and which connect to a Unix socket of rank 0. DDL_SOCKET names the socket: the path of a file, or an
// abstract name
// "@...". If it is unset, an abstract name is made from the user, MASTER_PORT (if that is unset too: the
// session) and the number of ranks. Processes of other users are rejected. No file is left behind.

/// True if WORLD_SIZE and RANK are set.
bool is_socket_job();
/// The value of RANK. Throws `invalid_argument` unless it is below WORLD_SIZE.
int socket_rank();
/// Connects all ranks. Throws `invalid_argument` for bad values of variables, `transport` for a socket that
/// cannot be used, `mismatch` if WORLD_SIZE differs or two processes have the same RANK, `timeout` if a rank
/// does not arrive. `abort` closes the connections; the other ranks notice by the watch, or by the end of
/// their connection.
std::unique_ptr<ProcessBootstrap> join_by_socket(std::chrono::milliseconds deadline);

}  // namespace ddl
