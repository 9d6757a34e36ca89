#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "collectives/watch/connection.hpp"
#include "collectives/watch/exit_report.hpp"

namespace ddl::collectives {

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

}  // namespace ddl::collectives
