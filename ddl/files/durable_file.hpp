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

/// Writes a new file from front to back. Every failure throws `io` with path, operation and reason.
class FileWriter {
 public:
  /// An existing file is overwritten.
  explicit FileWriter(std::filesystem::path path);

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  /// Syncs to the device and closes; without it the file counts for nothing.
  FileSummary finish();

 private:
  std::filesystem::path path_;
  collectives::FileDescriptor file_;
  FileSummary summary_;
};

/// A file that takes the place of `path` at once, when it is whole: until then it has another name in the
/// same directory, and is gone if this goes before.
class AtomicFileWriter {
 public:
  explicit AtomicFileWriter(std::filesystem::path path);
  AtomicFileWriter(const AtomicFileWriter&) = delete;
  AtomicFileWriter& operator=(const AtomicFileWriter&) = delete;
  ~AtomicFileWriter();

  void write(std::string_view text) { file_.write(text); }
  /// Syncs and renames.
  void finish();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  FileWriter file_;
  bool finished_ = false;
};

/// Reads a regular file; the size is the file's own when it was opened.
class FileReader {
 public:
  explicit FileReader(std::filesystem::path path);

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// Fills `bytes` from `offset`; throws `corrupt_data` if the file ends before.
  void read_at(std::uint64_t offset, std::span<std::byte> bytes) const;
  [[nodiscard]] std::string read_all() const;
  [[nodiscard]] FileSummary summary() const;

 private:
  std::filesystem::path path_;
  collectives::FileDescriptor file_;
  std::uint64_t size_ = 0;
};

/// The whole of a file of `most` bytes at most; `corrupt_data` for a larger one, which cannot be `what`.
std::string read_file(const std::filesystem::path& path, std::uint64_t most, std::string_view what);

/// Unless it is there. Throws `io`, also for something else in its place.
void make_directories(const std::filesystem::path& directory);
/// Makes the names in a directory durable.
void sync_directory(const std::filesystem::path& directory);

/// "cannot OPERATION 'PATH': REASON" as `io`.
[[noreturn]] void throw_io(std::string_view operation, const std::filesystem::path& path, int error);

/// "'PATH' is damaged: found FOUND, expected EXPECTED" as `corrupt_data`.
[[noreturn]] void throw_corrupt(const std::filesystem::path& path, std::string_view found,
                                std::string_view expected);

}  // namespace ddl
