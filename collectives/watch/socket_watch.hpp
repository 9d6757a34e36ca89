#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collectives/system/bootstrap.hpp"
#include "collectives/watch/connection.hpp"
#include "collectives/watch/exit_report.hpp"
#include "collectives/watch/watch.hpp"

namespace ddl::collectives {

inline constexpr auto time_to_say_goodbye = std::chrono::milliseconds(200);

/// The first message of a rank.
struct WatchHello {
  JobToken token{};
  int rank = 0;
  std::int64_t pid = 0;
  std::string host;
};
std::string to_message(const WatchHello& hello);
/// Throws `corrupt_data`.
WatchHello parse_hello(std::string_view message);

/// Gathers the failures of a job. Runs in rank 0's process, in a thread of its own that sleeps until
/// something happens. Every rank connects to it (n connections, for which it raises the process's soft limit
/// of file descriptors). A connection that ends without a `leave` message is a death; deaths before `begin`
/// are reported when `begin` is called. The hub broadcasts the first failure, gathers each rank's state, and
/// sends the report to all ranks.
///
/// The port stays open until all ranks have connected. A peer without the token, or with malformed messages,
/// is refused; `warn` is called for the first one.
class WatchHub {
 public:
  struct Settings {
    int ranks = 1;
    bool loopback_only = true;
    JobToken token{};
    std::function<void(const std::string&)> warn = [](const std::string&) {};
    /// Called once, by the hub's thread.
    std::function<void(const ExitReport&)> on_report = [](const ExitReport&) {};
  };

  /// Throws `transport` if it cannot listen.
  explicit WatchHub(Settings settings);
  /// Finishes a pending report, and tells all ranks that the hub leaves.
  ~WatchHub();

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  /// Call once all ranks have connected: from here on, a connection that ends is a death.
  void begin();

 private:
  struct Peer;
  struct State;
  void run();
  std::unique_ptr<State> state_;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

/// How to reach rank 0's hub.
struct WatchInvitation {
  std::vector<std::string> addresses;
  std::uint16_t port = 0;
  JobToken token{};
  std::string host;  ///< Rank 0's, for reports; so is `pid`.
  std::int64_t pid = 0;
};

struct SocketWatchSettings {
  WatchHello hello;
  WatchInvitation invitation;
  /// Deadline for rank 0's answer.
  Clock::time_point until;
  /// Called by the watch's thread if rank 0 dies, so that no hub can report, while this rank is in no
  /// collective that could throw.
  std::function<void(const ExitReport&)> on_report = [](const ExitReport&) {};
};

/// The watch of a rank that is a process: a connection to rank 0's hub, and a thread that listens on it, so
/// that the rank hears of other ranks' failures, and answers, even while it computes. Throws `transport` if
/// rank 0 cannot be reached or does not answer in time.
std::unique_ptr<Watch> watch_by_socket(const SocketWatchSettings& settings);

struct OpenedWatch {
  std::unique_ptr<WatchHub> hub;  ///< On rank 0 only. Must outlive `watch`.
  std::shared_ptr<Watch> watch;   ///< Null if there is no watch; then it is null on all ranks.
  std::string reason;             ///< Why there is no watch; the same text on all ranks.
};

struct WatchSettings {
  std::string host;  ///< This rank's host, for reports.
  std::function<void(const std::string&)> warn;
  std::function<void(const ExitReport&)> on_report;         ///< See `WatchHub::Settings`.
  std::function<void(const ExitReport&)> on_lonely_report;  ///< See `SocketWatchSettings::on_report`.
};

/// Connects each rank to rank 0, which gathers failures. Collective. Rank 0 listens on a TCP port until all
/// ranks have connected, for at most 15 s, and on the loopback interface only if all ranks are on its
/// machine. A peer must present a token that rank 0 draws and distributes through `bootstrap`.
OpenedWatch open_watch(Bootstrap& bootstrap, WatchSettings settings);

}  // namespace ddl::collectives
