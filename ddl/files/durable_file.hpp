#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "collectives/system/descriptors.hpp"

namespace ddl {

/// Size and CRC-32 (zlib's) of a file.
struct FileSummary {
  std::uint64_t bytes = 0;
  std::uint32_t crc32 = 0;

  void add(std::span<const std::byte> bytes) noexcept;
  bool operator==(const FileSummary&) const = default;
};

/// Writes a new file sequentially. Throws `io` with the path, the operation and the reason.
class FileWriter {
 public:
  /// Overwrites an existing file.
  explicit FileWriter(const std::filesystem::path& path) : FileWriter(path, path) {}
  /// `named`: the path that errors name.
  FileWriter(const std::filesystem::path& path, std::filesystem::path named);

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  /// Syncs the file to the device and closes it. The file is not durable without this call.
  FileSummary finish();

 private:
  std::filesystem::path path_;
  collectives::FileDescriptor file_;
  FileSummary summary_;
};

/// A file that replaces `path` atomically when it is complete. Until then it has a temporary name in the same
/// directory; the destructor removes it if `finish` has not succeeded.
class AtomicFileWriter {
 public:
  explicit AtomicFileWriter(std::filesystem::path path);
  AtomicFileWriter& operator=(AtomicFileWriter&&) = delete;
  ~AtomicFileWriter();

  void write(std::string_view text) { file_.write(text); }
  /// Syncs the file, renames it to `path`, and syncs the directory.
  void finish();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  FileWriter file_;
  bool finished_ = false;
};

/// Reads a regular file. Its size is the one at the time of opening.
class FileReader {
 public:
  explicit FileReader(std::filesystem::path path);

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// Fills `bytes` from `offset` on; throws `corrupt_data` if the file is too short or the disk is damaged.
  void read_at(std::uint64_t offset, std::span<std::byte> bytes) const;
  [[nodiscard]] std::string read_all() const;
  [[nodiscard]] FileSummary summary() const;

 private:
  std::filesystem::path path_;
  collectives::FileDescriptor file_;
  std::uint64_t size_ = 0;
};

/// Reads a whole file. Throws `corrupt_data`, expecting `what`, if it has more than `most` bytes.
std::string read_file(const std::filesystem::path& path, std::uint64_t most, std::string_view what);

/// Creates a directory and its parents unless it exists. Throws `io`, also if `directory` is something else.
void make_directories(const std::filesystem::path& directory);
/// Makes created and renamed entries of a directory durable.
void sync_directory(const std::filesystem::path& directory);

/// Throws `io`: "cannot OPERATION 'PATH': REASON".
[[noreturn]] void throw_io(std::string_view operation, const std::filesystem::path& path, int error);

/// Throws `corrupt_data`: "'PATH' is damaged: found FOUND, expected EXPECTED".
[[noreturn]] void throw_corrupt(const std::filesystem::path& path, std::string_view found,
                                std::string_view expected);

}  // namespace ddl
