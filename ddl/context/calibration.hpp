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

/// A cache of measured latencies and bandwidths of links, one file per topology.
class MeasurementCache {
 public:
  /// An empty `directory` disables the cache.
  explicit MeasurementCache(std::filesystem::path directory) : directory_(std::move(directory)) {}

  /// The file for `topology`, which need not exist; empty if the cache is disabled.
  [[nodiscard]] std::filesystem::path path_for(const topology::Topology& topology) const;
  /// Returns the figures for `topology`, if there are any. Throws `io`, and `corrupt_data` for a file that is
  /// damaged, of another topology, or owned by another user.
  [[nodiscard]] std::optional<std::vector<topology::Measurement>> load(
      const topology::Topology& topology) const;
  /// Makes the directory if necessary; readers see the old file or the new one. Throws `io`.
  void store(const topology::Topology& topology, std::span<const topology::Measurement> measurements) const;

 private:
  std::filesystem::path directory_;
};

/// Makes plans use measured figures, as `options.probe` says. To be called before the first plan is chosen.
/// Rank 0 reads and writes the file; one that cannot be used causes a warning and, if `probe` is `on`, a new
/// measurement. Collective.
void calibrate_plans(collectives::Bootstrap& bootstrap, collectives::CommunicatorImpl& communicator,
                     const ContextOptions& options, Log& log);

}  // namespace ddl
