#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/system/bootstrap.hpp"
#include "collectives/watch/connection.hpp"
#include "collectives/watch/watch.hpp"
#include "collectives/watch/watch_hub.hpp"

namespace ddl::collectives {

/// How to reach rank 0's hub.
struct WatchInvitation {
  std::vector<std::string> addresses;
  std::uint16_t port = 0;
  JobToken token{};
  std::string host;  ///< Rank 0's, for reports; so is `pid`.
  std::int64_t pid = 0;
};

/// The watch of a rank that is a process: a connection to rank 0's hub, and a thread that listens on it, so
/// that the rank hears of other ranks' failures, and answers, even while it computes.
class SocketWatch final : public Watch {
 public:
  struct Settings {
    WatchHello hello;
    WatchInvitation invitation;
    /// Deadline for rank 0's answer.
    Clock::time_point until;
    /// Called by the watch's thread if rank 0 dies, so that no hub can report, while this rank is in no
    /// collective that could throw.
    std::function<void(const ExitReport&)> on_report = [](const ExitReport&) {};
  };

  /// Throws `transport` if rank 0 cannot be reached or does not answer in time.
  explicit SocketWatch(const Settings& settings);
  ~SocketWatch() override;

  /// Adds the flight recorder of another rank of this host, for reports in case that rank dies. `tape` must
  /// live until `detach`.
  void add_neighbour(int rank, const FlightTape& tape);

  /// When `event` (an eventfd) is signalled, the watch's thread calls `dump` with the recorded calls.
  void dump_on(int event, std::function<void(const std::vector<FlightRecord>&)> dump);

  void attach(const FlightRecorder& recorder, std::function<void()> on_failure) override;
  void detach() override;
  [[nodiscard]] bool failed() const noexcept override;
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
  std::unique_ptr<WatchHub> hub;       ///< On rank 0 only. Must outlive `watch`.
  std::shared_ptr<SocketWatch> watch;  ///< Null if there is no watch; then it is null on all ranks.
  std::string reason;                  ///< Why there is no watch; the same text on all ranks.
};

struct WatchSettings {
  std::string host;  ///< This rank's host, for reports.
  std::function<void(const std::string&)> warn;
  std::function<void(const ExitReport&)> on_report;         ///< See `WatchHub::Settings`.
  std::function<void(const ExitReport&)> on_lonely_report;  ///< See `SocketWatch::Settings::on_report`.
};

/// Connects each rank to rank 0, which gathers failures. Collective. Rank 0 listens on a TCP port until all
/// ranks have connected, for at most 15 s, and on the loopback interface only if all ranks are on its
/// machine. A peer must present a token that rank 0 draws and distributes through `bootstrap`.
OpenedWatch open_watch(Bootstrap& bootstrap, WatchSettings settings);

}  // namespace ddl::collectives
