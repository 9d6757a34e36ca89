#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "ddl/checkpoint.hpp"
#include "ddl/checkpoint/checkpoint_manifest.hpp"

namespace ddl {

/// Names, publishes and removes the checkpoints in one directory. Throws `io`. Not thread-safe.
class CheckpointDirectory {
 public:
  explicit CheckpointDirectory(std::filesystem::path directory) : directory_(std::move(directory)) {}

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return directory_; }
  /// The path of a step's checkpoint, and the path while it is being written.
  [[nodiscard]] std::filesystem::path path_of(std::uint64_t step) const;
  [[nodiscard]] std::filesystem::path temporary_of(std::uint64_t step) const;

  /// The steps of all entries named as checkpoints, valid or not, ascending. Empty without the directory.
  [[nodiscard]] std::vector<std::uint64_t> steps() const;
  /// The steps with a valid manifest and a metric, by descending metric; equal metrics by ascending step.
  [[nodiscard]] std::vector<std::uint64_t> best_steps() const;

  /// Removes the leftovers of a crash, and makes the temporary directory of `step`.
  void prepare(std::uint64_t step) const;
  /// Makes the temporary directory, which must be complete and synced, the checkpoint of `step`. An existing
  /// one is replaced atomically if the file system supports that.
  void publish(std::uint64_t step) const;
  /// Removes the temporary directory of a save that failed.
  void discard(std::uint64_t step) const noexcept;
  /// Removes all valid checkpoints except the newest `keep`, the best `keep_best` and `step`. Neither counts
  /// nor removes checkpoints that are damaged or of another format.
  void remove_old(std::uint64_t step, std::size_t keep, std::size_t keep_best) const;

 private:
  void clean_up() const;

  std::filesystem::path directory_;
};

/// The contents of a safetensors file.
struct TensorFile {
  std::vector<NamedTensor> tensors;
  std::map<std::string, std::string> metadata;
};
using TensorFiles = std::map<std::string, TensorFile>;

/// Writes and syncs files and the directory. Throws `io`, and `invalid_argument` for repeated tensor names.
FileSummaries write_files(const std::filesystem::path& directory, const TensorFiles& tensors,
                          const std::map<std::string, std::string>& texts);

}  // namespace ddl
