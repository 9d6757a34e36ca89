#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "ddl/checkpoint/checkpoint_layout.hpp"
#include "ddl/files/durable_file.hpp"

namespace ddl {

inline constexpr const char* manifest_name = "manifest.json";
inline constexpr const char* state_name = "state.json";

/// By file name.
using FileSummaries = std::map<std::string, FileSummary>;

/// As manifests have them: for other ranks, and from them.
std::string to_json(const FileSummaries& files);
FileSummaries parse_files(const std::string& text);

/// What `manifest.json` says about a checkpoint.
struct CheckpointManifest {
  std::uint64_t step = 0;
  std::optional<double> metric;
  CheckpointLayout layout;
  FileSummaries files;

  /// The member "checksum" is the CRC-32 of the text with zeros for its 8 digits, in every format.
  [[nodiscard]] std::string to_json() const;

  /// Reads a checkpoint's manifest as text, bounded; throws `corrupt_data` if there is none.
  static std::string read_text(const std::filesystem::path& checkpoint);
  /// Throws `corrupt_data` (damaged), or `unsupported` (undamaged, of another format).
  static CheckpointManifest parse(const std::filesystem::path& checkpoint, const std::string& text);
  /// Both. Does not look at the files it names.
  static CheckpointManifest read(const std::filesystem::path& checkpoint);

  /// Opens a file that it names; throws `corrupt_data` unless there is one of the size that it says, or `io`.
  [[nodiscard]] FileReader open(const std::filesystem::path& checkpoint, const std::string& name) const;
  /// Compares files with their sizes and checksums; throws `corrupt_data` or `io`. Of every `count` files,
  /// the one of this `index`.
  void verify(const std::filesystem::path& checkpoint, std::size_t index = 0, std::size_t count = 1) const;
};

/// True for a name that stays inside its directory.
bool is_plain_file_name(const std::string& name);

}  // namespace ddl
