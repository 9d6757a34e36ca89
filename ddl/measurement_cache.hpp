#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

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

}  // namespace ddl
