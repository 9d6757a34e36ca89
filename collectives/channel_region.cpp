#include "collectives/channel_region.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "ddl/error.hpp"

namespace ddl::collectives {
namespace {

constexpr std::size_t page = 4096;

struct Header {
  RegionToken token;
  std::uint32_t ranks;
  std::atomic<std::uint32_t> failed;
};

// Offsets inside the region; everything is aligned to a page.
struct Layout {
  explicit Layout(int ranks) {
    const auto n = static_cast<std::size_t>(ranks);
    rank_states = page;
    channel_states = rank_states + up(n * sizeof(RankState));
    data = channel_states + up(n * n * sizeof(ChannelState));
    end = data + n * n * ChannelRegion::capacity_for(ranks);
  }
  static std::size_t up(std::size_t bytes) { return (bytes + page - 1) / page * page; }

  std::size_t rank_states;
  std::size_t channel_states;
  std::size_t data;
  std::size_t end;
};

[[noreturn]] void fail(const char* operation) {
  throw Error(ErrorCode::transport,
              fmt::format("shared memory: {} failed: {}", operation, std::strerror(errno)));
}

}  // namespace

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) close(fd_);
    fd_ = other.release();
  }
  return *this;
}
FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) close(fd_);
}
int FileDescriptor::release() noexcept { return std::exchange(fd_, -1); }

std::size_t ChannelRegion::capacity_for(int ranks) noexcept {
  constexpr std::size_t budget = std::size_t{256} << 20;
  const auto n = static_cast<std::size_t>(ranks);
  return std::clamp(std::bit_floor(budget / (n * n)), page, std::size_t{512} << 10);
}

ChannelRegion::ChannelRegion(int ranks, int fd)
    : ranks_(ranks), capacity_(capacity_for(ranks)), bytes_(Layout(ranks).end), base_(nullptr) {
  const int flags = (fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS) | MAP_NORESERVE;
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (memory == MAP_FAILED) fail("mmap");
  base_ = static_cast<std::byte*>(memory);
}

ChannelRegion::ChannelRegion(ChannelRegion&& other) noexcept
    : ranks_(other.ranks_),
      capacity_(other.capacity_),
      bytes_(other.bytes_),
      base_(std::exchange(other.base_, nullptr)) {}

ChannelRegion::~ChannelRegion() {
  if (base_ != nullptr) munmap(base_, bytes_);
}

ChannelRegion ChannelRegion::in_process(int ranks) { return {ranks, -1}; }

ChannelRegion ChannelRegion::create_file(int ranks, const RegionToken& token, FileDescriptor& file) {
  file = FileDescriptor(memfd_create("ddl-channels", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid()) fail("memfd_create");
  if (ftruncate(file.get(), static_cast<off_t>(Layout(ranks).end)) != 0) fail("ftruncate");
  // A peer must not be able to take away pages that others have mapped.
  if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) fail("sealing");
  ChannelRegion region(ranks, file.get());
  auto* header = reinterpret_cast<Header*>(region.base_);
  header->token = token;
  header->ranks = static_cast<std::uint32_t>(ranks);
  return region;
}

ChannelRegion ChannelRegion::open_file(int ranks, const RegionToken& token, const FileDescriptor& file) {
  struct stat status {};
  if (fstat(file.get(), &status) != 0) fail("fstat");
  if (static_cast<std::size_t>(status.st_size) != Layout(ranks).end) {
    throw Error(ErrorCode::transport,
                fmt::format("shared memory: the segment has {} bytes, expected {} for {} ranks",
                            status.st_size, Layout(ranks).end, ranks));
  }
  ChannelRegion region(ranks, file.get());
  const auto* header = reinterpret_cast<const Header*>(region.base_);
  if (header->token != token || header->ranks != static_cast<std::uint32_t>(ranks)) {
    throw Error(ErrorCode::transport, "shared memory: received a segment that is not this job's");
  }
  return region;
}

RankState& ChannelRegion::rank(int index) const noexcept {
  return reinterpret_cast<RankState*>(base_ + Layout(ranks_).rank_states)[index];
}
std::size_t ChannelRegion::channel(int from, int to) const noexcept {
  return static_cast<std::size_t>(from) * static_cast<std::size_t>(ranks_) + static_cast<std::size_t>(to);
}
ChannelState& ChannelRegion::state(int from, int to) const noexcept {
  return reinterpret_cast<ChannelState*>(base_ + Layout(ranks_).channel_states)[channel(from, to)];
}
std::byte* ChannelRegion::data(int from, int to) const noexcept {
  return base_ + Layout(ranks_).data + channel(from, to) * capacity_;
}
std::atomic<std::uint32_t>& ChannelRegion::failed() const noexcept {
  return reinterpret_cast<Header*>(base_)->failed;
}

}  // namespace ddl::collectives
