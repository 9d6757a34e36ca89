#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "collectives/communicator/communicator_impl.hpp"
#include "collectives/timeline/run_recorder.hpp"
#include "ddl/log.hpp"

namespace ddl {

/// The figures of a run on one rank.
struct RunFigures {
  struct Plan {
    std::string text;
    std::uint64_t hash = 0;
    std::uint64_t calls = 0;
    double predicted_us = 0;
    double mean_us = 0;   ///< From the start in the engine to the end, including waits for other ranks.
    double least_us = 0;  ///< The fastest call.
  };
  collectives::RunStatistics::Shares gradients, all;
  std::map<std::string, std::uint64_t>
      received;  ///< Bytes, by the kind of the narrowest link on their route.
  std::vector<Plan> plans;

  [[nodiscard]] std::string json() const;
  static RunFigures parse(const std::string& json);
};

/// The lines of the summary; `ranks` holds all ranks' figures, by rank. The plan with the largest total time
/// comes first. A call's time begins when its rank arrives, so the shortest time of all calls and ranks,
/// which has no waits, is compared with the prediction; the mean is that of the rank that waited least.
std::vector<std::string> summary_lines(const std::vector<RunFigures>& ranks);

/// Logs the summary on rank 0 at the level of information. Collective.
void summarise(collectives::CommunicatorImpl& communicator, const collectives::RunRecorder& recorder,
               Log& log);

}  // namespace ddl
