#pragma once

#include <functional>
#include <memory>
#include <string>

#include "collectives/bootstrap.hpp"
#include "collectives/watch/socket_watch.hpp"
#include "collectives/watch/watch_hub.hpp"

namespace ddl::collectives {

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
