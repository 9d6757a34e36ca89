#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/system/bootstrap.hpp"
#include "collectives/watch/connection.hpp"
#include "collectives/watch/watch.hpp"
#include "collectives/watch/watch_hub.hpp"

namespace ddl::collectives {

/// Where rank 0 is.
struct WatchInvitation {
  std::vector<std::string> addresses;
  std::uint16_t port = 0;
  JobToken token{};
  std::string host;  ///< For reports.
  std::int64_t pid = 0;
};

/// The watch of a rank that is a process: a connection to rank 0's hub, and a thread that listens to it, so
/// that a rank learns of the others' deaths, and answers for itself, while it computes.
class SocketWatch final : public Watch {
 public:
  struct Settings {
    WatchHello hello;
    WatchInvitation invitation;
    /// Until when rank 0 must have answered.
    Clock::time_point until;
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
  [[nodiscard]] bool is_reported_by_root() const override;
  std::string set_scope(std::string scope) override;
  void leave() noexcept override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct OpenedWatch {
  std::unique_ptr<WatchHub> hub;       ///< Rank 0's; outlives its watch.
  std::shared_ptr<SocketWatch> watch;  ///< Null if there is none: on all ranks, or on none.
  std::string reason;                  ///< Why there is none; the same text on all ranks.
};

struct WatchSettings {
  std::string host;  ///< This rank's, for reports.
  std::function<void(const std::string&)> warn;
  std::function<void(const ExitReport&)> on_report;         ///< `WatchHub::Settings`.
  std::function<void(const ExitReport&)> on_lonely_report;  ///< `SocketWatch::Settings::on_report`.
};

/// Has each rank connect with rank 0, where the job's failures are gathered. Collective. Rank 0 opens a TCP
/// port until all have come, 15 s at most, to its own machine alone if all ranks are there; who connects must
/// know a token that rank 0 has drawn and given to the others through `bootstrap`.
OpenedWatch open_watch(Bootstrap& bootstrap, WatchSettings settings);

}  // namespace ddl::collectives
