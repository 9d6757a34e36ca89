#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "collectives/communicator/communicator_impl.hpp"
#include "collectives/timeline/run_recorder.hpp"
#include "ddl/log.hpp"

namespace ddl {

/// What a run came to on one rank, or, of `plans`, on all.
struct RunFigures {
  struct Plan {
    std::string text;
    std::uint64_t hash = 0;
    std::uint64_t calls = 0;
    double predicted_us = 0;
    double mean_us = 0;   ///< From where the engine began to the end: waits for others included.
    double least_us = 0;  ///< Of one call.
  };
  collectives::RunStatistics::Shares gradients, all;
  std::map<std::string, std::uint64_t> received;  ///< Bytes, by kind of the narrowest link on their way.
  std::vector<Plan> plans;

  [[nodiscard]] std::string json() const;
  static RunFigures parse(const std::string& json);
};

/// Lines for people, of all ranks' figures by rank. Of plans the one in which most time went comes first. A
/// call's time begins when its rank comes, so the least of all calls and ranks, which waited for nobody, is
/// what compares with the prediction; the mean is that of the rank that waited least.
std::vector<std::string> summary_lines(const std::vector<RunFigures>& ranks);

/// Rank 0 logs the lines, as information. Collective.
void summarise(collectives::CommunicatorImpl& communicator, const collectives::RunRecorder& recorder,
               Log& log);

}  // namespace ddl
