#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "collectives/watch/connection.hpp"
#include "collectives/watch/watch.hpp"
#include "collectives/watch/watch_hub.hpp"

namespace ddl::collectives {

/// The watch of a rank that is a process: a connection to rank 0's hub, and a thread that listens to it, so
/// that a rank learns of the others' deaths, and answers for itself, while it computes.
class SocketWatch final : public Watch {
 public:
  struct Settings {
    WatchHello hello;
    std::vector<std::string> addresses;  ///< Of rank 0.
    std::uint16_t port = 0;
    std::string root_host;  ///< Where rank 0 is, for reports.
    std::int64_t root_pid = 0;
    /// Until when rank 0 must have answered.
    std::chrono::steady_clock::time_point until;
    /// Called by the watch's thread if rank 0 dies, and with it the hub that would report, while this rank
    /// does not wait for any collective and so throws nothing.
    std::function<void(const ExitReport&)> on_report = [](const ExitReport&) {};
  };

  /// Throws `transport` if rank 0 cannot be reached, or does not answer.
  explicit SocketWatch(const Settings& settings);
  ~SocketWatch() override;

  /// The flight recorders of ranks of this host, which answer for them when they are dead. Their memory lives
  /// until `detach`.
  void add_neighbour(int rank, const FlightTape& tape);

  /// `dump` gets what the recorder holds, in the watch's thread, when `event` (an eventfd) is written to.
  void dump_on(int event, std::function<void(const std::vector<FlightRecord>&)> dump);

  void attach(const FlightRecorder& recorder, std::function<void()> on_failure) override;
  void detach() override;
  [[nodiscard]] JobFailure failure() const override;
  void announce(const JobFailure& failure) override;
  void stopped(const std::string& waits_for) override;
  [[nodiscard]] ExitReport report() override;
  std::string set_scope(std::string scope) override;
  void leave() noexcept override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ddl::collectives
