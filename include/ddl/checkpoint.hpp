#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/data_type.hpp"

namespace ddl {

/// A tensor to be saved, or a place to be filled. `bytes` covers the product of `shape` elements.
struct NamedTensor {
  std::string name;
  DataType type = DataType::f32;
  std::vector<std::int64_t> shape;
  std::span<std::byte> bytes;
};

/// A set of checkpoints under one directory: `DIR/step-0000001234/` with
/// - one safetensors file per group of tensors (`model.safetensors`, `optimizer.safetensors`, ...),
///   readable by the Python package of that name,
/// - `state.json`, whatever the trainer needs to go on,
/// - further small files given by name (a vocabulary),
/// - `manifest.json`, written last: format version, step, each file's size and CRC-32, and a checksum
///   of its own.
/// A checkpoint is written under a temporary name, synced and renamed, so a crash or a full disk
/// leaves the earlier ones as they were; a directory without a valid manifest is not a checkpoint.
/// What a crash left behind is removed by the next `save`.
/// One process writes (use `Context::root_only`); any number read. Not thread-safe.
/// Cost: each byte is written, or read and summed, once (a reader that fills tensors reads twice).
/// Errors: `invalid_argument` (names, shapes or JSON that cannot be saved), `io` (path, operation,
/// system's reason), `corrupt_data` (file, what was found and expected, and which older checkpoint is
/// whole), `mismatch` (tensor, found and expected shape), `unsupported` (a newer format).
class CheckpointDirectory {
 public:
  /// `keep`: after each save all but the newest `keep` are removed (0 keeps all); the one just
  /// written stays in any case. The directory is made by the first `save`.
  explicit CheckpointDirectory(std::filesystem::path directory, std::size_t keep = 5);

  struct Contents {
    std::map<std::string, std::vector<NamedTensor>> groups;  ///< group name -> tensors
    std::string state;                                       ///< JSON text
    std::map<std::string, std::string> files;                ///< file name -> contents
  };
  /// Writes a checkpoint and returns its path. An existing one of the same step is replaced. File
  /// and group names are plain names, without directories.
  std::filesystem::path save(std::uint64_t step, const Contents& contents);

  /// Steps of the complete checkpoints, ascending. Checks manifests, not file contents; one of a
  /// newer format counts (reading it says what is wrong).
  [[nodiscard]] std::vector<std::uint64_t> steps() const;
  /// The last of `steps()`. Throws `corrupt_data` if a directory of a later step has lost its
  /// manifest: a run must not silently fall back to an older checkpoint.
  [[nodiscard]] std::optional<std::uint64_t> newest() const;
  [[nodiscard]] std::filesystem::path path_of(std::uint64_t step) const;
  [[nodiscard]] const std::filesystem::path& directory() const noexcept { return directory_; }

 private:
  std::filesystem::path directory_;
  std::size_t keep_;
};

/// One checkpoint, opened for reading. Opening verifies every file's size and checksum; nothing in
/// the files is trusted, and no memory is taken for a size that a file only claims to have.
/// Errors: as `CheckpointDirectory`.
class CheckpointReader {
 public:
  explicit CheckpointReader(std::filesystem::path checkpoint);

  [[nodiscard]] std::uint64_t step() const noexcept { return step_; }
  [[nodiscard]] const std::string& state() const noexcept { return state_; }
  /// Contents of a further file; throws `corrupt_data` if the checkpoint has none of that name.
  [[nodiscard]] std::string file(const std::string& name) const;
  [[nodiscard]] bool has_group(const std::string& group) const;
  /// Fills every tensor of `tensors` from the group. Names, types and shapes must agree both ways;
  /// nothing is filled unless all do.
  void read(const std::string& group, std::span<const NamedTensor> tensors) const;

 private:
  std::filesystem::path path_;
  std::uint64_t step_ = 0;
  std::string state_;
  std::map<std::string, std::uint64_t> files_;  // name -> size
};

/// Writes `bytes` to `path` through a temporary file that is synced and renamed.
void write_file_atomically(const std::filesystem::path& path, std::string_view bytes);

}  // namespace ddl
