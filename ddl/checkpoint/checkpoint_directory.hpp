#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "ddl/checkpoint.hpp"
#include "ddl/checkpoint/checkpoint_manifest.hpp"

namespace ddl {

/// Names and places of checkpoints under one directory, and how they come and go there: what one process does
/// to the file system. Errors: `io`. Not thread-safe.
class CheckpointDirectory {
 public:
  explicit CheckpointDirectory(std::filesystem::path directory) : directory_(std::move(directory)) {}

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return directory_; }
  /// Where the checkpoint of a step is, and where it is while it is being written.
  [[nodiscard]] std::filesystem::path path_of(std::uint64_t step) const;
  [[nodiscard]] std::filesystem::path temporary_of(std::uint64_t step) const;

  /// Steps of all directories named as checkpoints, complete or not, ascending. None if there is no
  /// directory.
  [[nodiscard]] std::vector<std::uint64_t> steps() const;
  /// Those with a valid manifest and a metric, the greatest metric first, of equal ones the earliest.
  [[nodiscard]] std::vector<std::uint64_t> best_steps() const;

  /// Removes what a crash left behind, and makes the temporary directory.
  void prepare(std::uint64_t step) const;
  /// The temporary directory, complete and synced, becomes the checkpoint of its step, in one go where the
  /// file system can replace an earlier one so.
  void publish(std::uint64_t step) const;
  /// Removes what is left of a save that failed.
  void discard(std::uint64_t step) const noexcept;
  /// Removes all whole checkpoints but the newest `keep`, the best `keep_best` and `step`. What is damaged,
  /// or of another format, is neither counted nor removed.
  void remove_old(std::uint64_t step, std::size_t keep, std::size_t keep_best) const;

 private:
  void clean_up() const;

  std::filesystem::path directory_;
};

/// A safetensors file's contents.
struct TensorFile {
  std::vector<NamedTensor> tensors;
  std::map<std::string, std::string> metadata;
};
using TensorFiles = std::map<std::string, TensorFile>;

/// Writes and syncs files, and their names in the directory. Throws `io`, and `invalid_argument` for two
/// tensors of a name.
FileSummaries write_files(const std::filesystem::path& directory, const TensorFiles& tensors,
                          const std::map<std::string, std::string>& texts);

}  // namespace ddl
