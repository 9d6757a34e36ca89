#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "ddl/durable_file.hpp"

namespace ddl {

inline constexpr const char* manifest_name = "manifest.json";

/// What `manifest.json` says about a checkpoint.
struct CheckpointManifest {
  std::uint64_t step = 0;
  std::map<std::string, FileSummary> files;

  [[nodiscard]] std::string to_json() const;

  /// Reads a checkpoint's manifest. Throws `corrupt_data` (missing, damaged) or `unsupported` (newer
  /// format). Does not look at the files it names.
  static CheckpointManifest read(const std::filesystem::path& checkpoint);

  /// Compares every file with its size and checksum; throws `corrupt_data` or `io`.
  void verify(const std::filesystem::path& checkpoint) const;
};

/// True for a name that stays inside its directory.
bool is_plain_file_name(const std::string& name);

}  // namespace ddl
