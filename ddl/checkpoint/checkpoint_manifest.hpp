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

/// File summaries in the manifest's format, for exchange between ranks.
std::string to_json(const FileSummaries& files);
FileSummaries parse_files(const std::string& text);

/// The contents of `manifest.json`, which describes a checkpoint.
struct CheckpointManifest {
  std::uint64_t step = 0;
  std::optional<double> metric;
  CheckpointLayout layout;
  FileSummaries files;

  /// In all format versions the member "checksum" is the CRC-32 of the text with zeros for its 8 digits.
  [[nodiscard]] std::string to_json() const;

  /// Reads a checkpoint's manifest as text, up to 64 MiB; throws `corrupt_data` if it is missing or larger.
  static std::string read_text(const std::filesystem::path& checkpoint);
  /// Throws `corrupt_data` if the manifest is damaged, `unsupported` for another format version.
  static CheckpointManifest parse(const std::filesystem::path& checkpoint, const std::string& text);
  /// As read_text and parse. Does not check the files that the manifest names.
  static CheckpointManifest read(const std::filesystem::path& checkpoint);

  /// Opens a file of the manifest. Throws `corrupt_data` if it is missing or of another size, and `io`.
  [[nodiscard]] FileReader open(const std::filesystem::path& checkpoint, const std::string& name) const;
  /// Checks size and checksum of every `count`-th file from `index` on; throws `corrupt_data` or `io`.
  void verify(const std::filesystem::path& checkpoint, std::size_t index = 0, std::size_t count = 1) const;
};

/// True for a name that stays inside its directory.
bool is_plain_file_name(const std::string& name);

}  // namespace ddl
