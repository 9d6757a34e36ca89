#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "collectives/doorbell.hpp"

namespace ddl::collectives {

/// Owns a file descriptor.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();

  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] bool valid() const noexcept { return fd_ >= 0; }
  int release() noexcept;

 private:
  int fd_ = -1;
};

/// Tells one region from another; drawn at random.
using RegionToken = std::array<std::uint64_t, 2>;

/// The positions of one channel's writer and reader, each counting all bytes so far, on cache lines
/// of their own. Zeros to start with.
struct ChannelState {
  alignas(64) std::atomic<std::uint64_t> written;
  alignas(64) std::atomic<std::uint64_t> read;
};

/// What the others know of one rank of a region.
struct alignas(64) RankState {
  Doorbell bell;
  std::atomic<std::uint32_t> left;
};

/// Memory that the ranks of a host share: a ring of bytes for each ordered pair of them. Pages are
/// touched at first use, so pairs that never talk cost address space only.
class ChannelRegion {
 public:
  /// For threads of one process.
  static ChannelRegion in_process(int ranks);
  /// For processes: an anonymous file, to be handed to the others.
  static ChannelRegion create_file(int ranks, const RegionToken& token, FileDescriptor& file);
  /// What another process created. Throws `transport` unless it has that token and that many ranks.
  static ChannelRegion open_file(int ranks, const RegionToken& token, const FileDescriptor& file);

  ChannelRegion(ChannelRegion&& other) noexcept;
  ChannelRegion& operator=(ChannelRegion&&) = delete;
  ~ChannelRegion();

  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  /// Bytes that a channel can hold; a power of two.
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] RankState& rank(int index) const noexcept;
  [[nodiscard]] ChannelState& state(int from, int to) const noexcept;
  [[nodiscard]] std::byte* data(int from, int to) const noexcept;
  /// 0, or 1 + the first rank (number in the job) that announced its failure.
  [[nodiscard]] std::atomic<std::uint32_t>& failed() const noexcept;

  /// With many ranks the channels get smaller, so that a job of threads stays small.
  static std::size_t capacity_for(int ranks) noexcept;

 private:
  ChannelRegion(int ranks, int fd);
  [[nodiscard]] std::size_t channel(int from, int to) const noexcept;

  int ranks_;
  std::size_t capacity_;
  std::size_t bytes_;
  std::byte* base_;
};

}  // namespace ddl::collectives
