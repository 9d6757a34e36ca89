#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/watch/connection.hpp"
#include "collectives/watch/exit_report.hpp"

namespace ddl::collectives {

/// What a rank says first.
struct WatchHello {
  JobToken token{};
  int rank = 0;
  std::int64_t pid = 0;
  std::string host;
};
std::string to_message(const WatchHello& hello);
/// Throws `corrupt_data`.
WatchHello parse_hello(std::string_view message);

/// Runs in rank 0's process, in a thread of its own that sleeps unless something happens. Every rank is
/// connected with it (n connections in all, for which the process's soft limit of file descriptors is
/// raised): a connection that ends without a goodbye is a death. Passes the first failure on to all, gathers
/// what each rank was about, and gives all of them the report.
///
/// From `begin` on. What was lost before is told then.
///
/// The port is open until all ranks have come. Who does not know the token, or does not speak its language,
/// is refused; `warn` is told of the first.
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
  /// Says goodbye; a report that is under way is finished first.
  ~WatchHub();

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  /// All ranks are connected and want to be: a connection that ends from here on is a death.
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
