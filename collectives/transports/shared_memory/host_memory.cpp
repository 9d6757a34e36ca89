#include "collectives/transports/shared_memory/host_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "ddl/error.hpp"

namespace ddl::collectives {
namespace {

// Parts do not share pages.
constexpr std::size_t part_alignment = std::size_t{64} << 10;
constexpr std::size_t page = 4096;

/// `most` for up to 16 members, then less, down to `least`, because there is a ring for each pair of members.
std::size_t shrunk(std::size_t most, std::size_t least, std::size_t members) {
  return members <= 16 ? most : std::max(least, std::bit_floor(most * 16 / members));
}

/// The first bytes of a `HostMemory`.
struct HostHeader {
  JobToken token;
  std::uint64_t layout;  ///< `HostLayout::signature`.
  std::uint64_t heap_bytes;
  std::uint32_t members;
};

/// Byte offsets of the parts of a `HostMemory`. The header is at 0.
struct HostLayout {
  /// `heap_bytes`: of each member, a multiple of a huge page.
  HostLayout(int members, std::size_t heap_bytes) noexcept;

  /// Differs between versions of the library with different layouts.
  static std::uint64_t signature() noexcept;

  std::size_t notices_per_ring;
  std::size_t parcel_bytes;
  std::size_t member_states;
  std::size_t tapes;
  std::size_t ring_states;
  std::size_t notices;
  std::size_t parcels;
  std::size_t turn_bytes;
  std::size_t turn_blocks;
  std::size_t heaps;
  std::size_t end;
};

HostLayout::HostLayout(int members, std::size_t heap_bytes) noexcept {
  const auto n = as_index(members);
  notices_per_ring = shrunk(64, 8, n);
  parcel_bytes = shrunk(4096, 256, n);
  // A member's blocks with all others take less than 4 MiB, for up to 256 members.
  turn_bytes = std::clamp(std::bit_floor((std::size_t{1} << 20) / n), page, std::size_t{256} << 10);

  std::size_t place = 0;
  const auto append = [&place](std::size_t bytes, std::size_t alignment) {
    place = (place + alignment - 1) / alignment * alignment;
    const std::size_t start = place;
    place += bytes;
    return start;
  };
  append(sizeof(HostHeader), part_alignment);
  member_states = append(n * sizeof(MemberState), part_alignment);
  tapes = append(n * sizeof(FlightTape), part_alignment);
  ring_states = append(n * n * sizeof(RingState), part_alignment);
  notices = append(n * n * notices_per_ring * sizeof(NoticeSlot), part_alignment);
  parcels = append(n * n * notices_per_ring * parcel_bytes, part_alignment);
  turn_blocks = append(n * (n - 1) / 2 * HostMemory::turn_blocks * (turn_bytes + page), part_alignment);
  heaps = append(n * heap_bytes, Mapping::huge_page);
  end = place;
}

std::uint64_t HostLayout::signature() noexcept {
  constexpr std::uint64_t version = 4;
  std::uint64_t signature = version;
  for (const std::size_t size : {sizeof(HostHeader), sizeof(MemberState), sizeof(RingState),
                                 sizeof(NoticeSlot), sizeof(Doorbell), sizeof(FlightTape)}) {
    signature = signature * 1009 + size;
  }
  return signature;
}

constexpr std::size_t gib = std::size_t{1} << 30;
constexpr std::size_t smallest_heap = gib;
constexpr std::size_t most_mapped = std::size_t{1} << 44;  // of the 2^47 bytes of a process's address space
constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW;

template <typename... Parts>
[[noreturn]] void refuse(fmt::format_string<Parts...> format, Parts&&... parts) {
  throw Error(ErrorCode::transport, "shared memory: " + fmt::format(format, std::forward<Parts>(parts)...));
}

std::size_t limit_of(decltype(RLIMIT_AS) resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
  return static_cast<std::size_t>(limit.rlim_cur);
}

/// Each member can allocate as much as the machine has, as far as the address space allows.
std::size_t wanted_heap(int members) {
  const auto n = as_index(members);
  const auto physical =
      static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t most = std::min(most_mapped, limit_of(RLIMIT_AS) / 2) / n / gib * gib;
  return std::clamp((physical + gib - 1) / gib * gib, smallest_heap, std::max(most, smallest_heap));
}

struct File {
  FileDescriptor descriptor;
  Mapping mapping;
  int error = 0;  // why the mapping failed
};

File new_file(std::size_t bytes) {
  File file{FileDescriptor(memfd_create("ddl-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING)), {}};
  const int fd = file.descriptor.get();
  if (!file.descriptor.valid()) refuse("memfd_create failed: {} (ulimit -n)", std::strerror(errno));
  // Beyond this limit ftruncate raises SIGXFSZ, which kills the process.
  if (bytes > limit_of(RLIMIT_FSIZE)) {
    file.error = EFBIG;
    return file;
  }
  // The seals keep a peer from truncating pages that others have mapped.
  if (ftruncate(fd, static_cast<off_t>(bytes)) == 0 && fcntl(fd, F_ADD_SEALS, seals | F_SEAL_SEAL) == 0) {
    file.mapping = Mapping::of_file(fd, bytes);
  }
  if (file.mapping.data() == nullptr) file.error = errno;
  return file;
}

HostHeader* header_in(const Mapping& mapping) { return reinterpret_cast<HostHeader*>(mapping.data()); }

/// Validates the file, and returns the size of a member's heap.
std::size_t checked_heap_bytes(const FileDescriptor& file, int members, const JobToken& token) {
  struct stat status {};
  if (fstat(file.get(), &status) != 0) refuse("fstat failed: {}", std::strerror(errno));
  if (const int found = fcntl(file.get(), F_GET_SEALS); found < 0 || (found & seals) != seals) {
    refuse("the file received is not a memory file whose size is fixed");
  }
  HostHeader header;
  const ssize_t read = pread(file.get(), static_cast<void*>(&header), sizeof header, 0);
  if (read != static_cast<ssize_t>(sizeof header)) {
    refuse("the file received has {} bytes, expected the memory of {} ranks", status.st_size, members);
  }
  if (header.layout != HostLayout::signature()) {
    refuse("the host's ranks run different versions of this library: layout {:#x}, expected {:#x}",
           header.layout, HostLayout::signature());
  }
  if (header.token != token || header.members != static_cast<std::uint32_t>(members)) {
    refuse("the memory received is not this job's: it is for {} ranks, expected {}, and its token {}",
           header.members, members, header.token == token ? "is right" : "is another");
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  if (header.heap_bytes == 0 || header.heap_bytes % Mapping::huge_page != 0 ||
      header.heap_bytes > most_mapped || HostLayout(members, header.heap_bytes).end != size) {
    refuse("the memory received has {} bytes, which does not fit heaps of {} bytes for {} ranks", size,
           header.heap_bytes, members);
  }
  return header.heap_bytes;
}

}  // namespace

HostMemory::HostMemory(int members, int index, Mapping mapping, std::size_t heap_bytes,
                       std::vector<FileDescriptor> events)
    : members_(members),
      index_(index),
      heap_bytes_(heap_bytes == 0 ? SIZE_MAX : heap_bytes),
      mapping_(std::move(mapping)),
      events_(std::make_unique<std::atomic<int>[]>(as_index(members))) {
  const HostLayout layout(members, heap_bytes);
  std::byte* const start = mapping_.data();
  notices_per_ring_ = layout.notices_per_ring;
  parcel_bytes_ = layout.parcel_bytes;
  member_states_ = reinterpret_cast<MemberState*>(start + layout.member_states);
  tapes_ = reinterpret_cast<FlightTape*>(start + layout.tapes);
  ring_states_ = reinterpret_cast<RingState*>(start + layout.ring_states);
  notices_ = reinterpret_cast<NoticeSlot*>(start + layout.notices);
  parcels_ = start + layout.parcels;
  turn_bytes_ = layout.turn_bytes;
  turn_blocks_ = start + layout.turn_blocks;
  // Most pairs use little of their rings, so huge pages would waste memory.
  madvise(start, layout.heaps, MADV_NOHUGEPAGE);

  if (heap_bytes != 0) {
    base_ = reinterpret_cast<std::uintptr_t>(start);
    size_ = layout.end;
    heap_ = std::make_unique<Heap>(start + layout.heaps + as_index(index) * heap_bytes, heap_bytes);
  }
  events.resize(as_index(members));
  for (std::size_t i = 0; i < events.size(); ++i) events_[i] = events[i].release();
}

std::byte* HostMemory::turn_block(int lower, int higher, std::size_t block) const noexcept {
  const std::size_t pairs_before = as_index(higher) * as_index(higher - 1) / 2;
  return turn_blocks_ + ((pairs_before + as_index(lower)) * turn_blocks + block) * (turn_bytes_ + page);
}

HostMemory::~HostMemory() {
  for (int i = 0; i < members_; ++i) FileDescriptor(events_[as_index(i)].load());
}

std::shared_ptr<HostMemory> HostMemory::in_process(int members) {
  Mapping mapping = Mapping::of_process(HostLayout(members, 0).end);
  if (mapping.data() == nullptr) {
    refuse("no address space for {} ranks: {}; {} bytes are needed (ulimit -v)", members,
           std::strerror(errno), HostLayout(members, 0).end);
  }
  return std::shared_ptr<HostMemory>(new HostMemory(members, -1, std::move(mapping), 0, {}));
}

std::shared_ptr<HostMemory> HostMemory::create(int members, int index, const JobToken& token,
                                               std::vector<FileDescriptor> events, FileDescriptor& file) {
  std::size_t heap_bytes = wanted_heap(members);
  File created;
  for (;;) {
    created = new_file(HostLayout(members, heap_bytes).end);
    if (created.mapping.data() != nullptr) break;
    if (heap_bytes == smallest_heap) {
      refuse(
          "no memory for {} ranks: {}; they need {} bytes of address space and file size, which take up "
          "memory only when used (ulimit -v, ulimit -f)",
          members, std::strerror(created.error), HostLayout(members, heap_bytes).end);
    }
    heap_bytes = std::max(heap_bytes / 2 / Mapping::huge_page * Mapping::huge_page, smallest_heap);
  }
  HostHeader& header = *header_in(created.mapping);
  header.token = token;
  header.layout = HostLayout::signature();
  header.heap_bytes = heap_bytes;
  header.members = static_cast<std::uint32_t>(members);
  file = std::move(created.descriptor);
  return std::shared_ptr<HostMemory>(
      new HostMemory(members, index, std::move(created.mapping), heap_bytes, std::move(events)));
}

std::shared_ptr<HostMemory> HostMemory::open(int members, int index, const JobToken& token,
                                             std::vector<FileDescriptor> events, const FileDescriptor& file) {
  const std::size_t heap_bytes = checked_heap_bytes(file, members, token);
  const std::size_t bytes = HostLayout(members, heap_bytes).end;
  Mapping mapping = Mapping::of_file(file.get(), bytes);
  if (mapping.data() == nullptr) {
    refuse("{} bytes cannot be mapped: {} (ulimit -v)", bytes, std::strerror(errno));
  }
  return std::shared_ptr<HostMemory>(
      new HostMemory(members, index, std::move(mapping), heap_bytes, std::move(events)));
}

std::shared_ptr<std::byte> HostMemory::allocate(int index, std::size_t bytes) {
  if (!heap_) return process_memory(bytes);
  assert(index == index_);
  void* const data = index == index_ ? heap_->allocate(bytes) : nullptr;
  if (data == nullptr) return nullptr;
  return {static_cast<std::byte*>(data),
          [self = shared_from_this()](std::byte* block) { self->heap_->release(block); }};
}

int HostMemory::event_descriptor(int index) const {
  std::atomic<int>& event = events_[as_index(index)];
  if (const int known = event.load(std::memory_order_acquire); known >= 0) return known;
  FileDescriptor made = new_event();
  int expected = -1;
  if (event.compare_exchange_strong(expected, made.get(), std::memory_order_acq_rel)) return made.release();
  return expected;
}

void HostMemory::signal(int index) const noexcept {
  // A member that sleeps by descriptor has called `event_descriptor` before.
  signal_event(events_[as_index(index)].load(std::memory_order_acquire));
}

}  // namespace ddl::collectives
