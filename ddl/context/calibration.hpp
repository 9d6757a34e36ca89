#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "collectives/communicator/communicator_impl.hpp"
#include "collectives/system/bootstrap.hpp"
#include "ddl/context.hpp"
#include "ddl/log.hpp"
#include "ddl/topology/calibrate.hpp"

namespace ddl {

/// Measured figures of links, a file for each topology.
class MeasurementCache {
 public:
  /// `directory` empty: nothing is kept, and nothing found.
  explicit MeasurementCache(std::filesystem::path directory) : directory_(std::move(directory)) {}

  /// Where those of this topology are, or would be; empty if nothing is kept.
  [[nodiscard]] std::filesystem::path path_for(const topology::Topology& topology) const;
  /// Nothing if there are none. Throws `io`, and `corrupt_data` for a file that is damaged, of another
  /// topology, or another user's.
  [[nodiscard]] std::optional<std::vector<topology::Measurement>> load(
      const topology::Topology& topology) const;
  /// Makes the directory if need be; readers see the old file or the new one. Throws `io`.
  void store(const topology::Topology& topology, std::span<const topology::Measurement> measurements) const;

 private:
  std::filesystem::path directory_;
};

/// Before the first plan is asked for: has plans chosen by measured figures, as `options.probe` says. Rank 0
/// reads and writes the file; one that cannot be used is a warning, and measured anew if `probe` is `on`.
/// Collective.
void calibrate_plans(collectives::Bootstrap& bootstrap, collectives::CommunicatorImpl& communicator,
                     const ContextOptions& options, Log& log);

}  // namespace ddl
