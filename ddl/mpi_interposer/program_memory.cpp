#include "ddl/mpi_interposer/program_memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "collectives/communicator/request.hpp"
#include "ddl/context.hpp"
#include "ddl/log.hpp"
#include "ddl/shared_buffer.hpp"
#include "topology/refuse.hpp"

namespace ddl::mpi {
namespace {

/// A move, and the page faults that follow from it, take as long as about so many calls gain (2 and 4 ranks
/// on a Zen 4, 64 KiB to 64 MiB). So memory of which the program has new blocks all the time is not moved.
std::size_t uses_before_move(std::size_t bytes) {
  constexpr std::size_t more = std::size_t{4} << 20;
  return 16 + more / bytes;
}

/// Whether a driver of GPUs is loaded. It may know pages by their physical addresses.
bool drives_gpus() {
  const auto is_driver = [](dl_phdr_info* library, std::size_t, void*) {
    const std::string_view path = library->dlpi_name;
    return static_cast<int>(path.find("/libcuda.so") != path.npos ||
                            path.find("/libhsa-runtime") != path.npos);
  };
  return dl_iterate_phdr(is_driver, nullptr) != 0;
}

/// Whether memory is pinned for another device, by the kernel's count. Older kernels count it as locked.
bool has_pinned_pages() {
  std::ifstream status("/proc/self/status");
  if (!status) return true;
  for (std::string line; std::getline(status, line);) {
    const bool counts = line.starts_with("VmPin:") || line.starts_with("VmLck:");
    if (counts && line.find_first_of("123456789") != std::string::npos) return true;
  }
  return false;
}

bool wants_private() {
  const char* const variable = std::getenv("DDL_MPI_MEMORY");
  return variable != nullptr && std::string_view(variable) == "private";
}

/// Moves a mapping to the address. Not by the function mremap, which Open MPI replaces by one that loses the
/// address.
bool mapped_at(std::byte* place, void* mapping, std::size_t bytes) noexcept {
  return syscall(SYS_mremap, mapping, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place) != -1;
}

/// Maps private pages, zeroed or with `contents`, at the address. False if the system has none: all is as
/// before.
bool map_private(std::byte* place, std::size_t bytes, const std::byte* contents) noexcept {
  constexpr int protection = PROT_READ | PROT_WRITE;
  constexpr int kind = MAP_PRIVATE | MAP_ANONYMOUS;
  if (contents == nullptr) return mmap(place, bytes, protection, kind | MAP_FIXED, -1, 0) != MAP_FAILED;
  void* const copy = mmap(nullptr, bytes, protection, kind, -1, 0);
  if (copy == MAP_FAILED) return false;
  std::memcpy(copy, contents, bytes);
  if (mapped_at(place, copy, bytes)) return true;
  munmap(copy, bytes);
  return false;
}

/// Maps the shared memory, with the contents of the pages that are there, at the address. False if that is
/// impossible: all is as before.
bool map_shared(std::byte* place, std::size_t bytes, std::byte* memory) {
  void* const again = mremap(memory, 0, bytes, MREMAP_MAYMOVE);  // a second mapping, if the memory is shared
  if (again == MAP_FAILED) return false;
  std::memcpy(memory, place, bytes);
  if (!mapped_at(place, again, bytes)) {
    munmap(again, bytes);
    // The kernel may have unmapped the place before it failed.
    if (map_private(place, bytes, memory)) return false;
    fail_with(ErrorCode::transport, "the system has no memory left: a buffer of {} bytes is lost", bytes);
  }
  madvise(place, bytes, MADV_DODUMP);  // memory of other ranks is not dumped, but this is the program's
  return true;
}

}  // namespace

/// Holds the mutex. What this thread allocates and frees meanwhile is passed by.
class ProgramMemory::Lock {
 public:
  explicit Lock(ProgramMemory& memory) noexcept : memory_(memory) {
    memory_.mutex_.lock();
    is_held = true;
  }
  Lock& operator=(Lock&&) = delete;
  ~Lock() {
    is_held = false;
    memory_.mutex_.unlock();
  }

  [[gnu::tls_model("initial-exec")]] static thread_local constinit bool is_held;

 private:
  ProgramMemory& memory_;
};

thread_local constinit bool ProgramMemory::Lock::is_held = false;

ProgramMemory& ProgramMemory::of_process() noexcept {
  alignas(ProgramMemory) static std::byte storage[sizeof(ProgramMemory)];
  static ProgramMemory* const memory = new (storage) ProgramMemory;
  return *memory;
}

ProgramMemory::ProgramMemory()
    : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))),
      is_private_(wants_private()),
      least_block_(is_private_ ? SIZE_MAX : 16 * page_),
      least_moved_(8 * page_) {
  pthread_atfork([] { of_process().before_fork(); }, [] { of_process().after_fork(false); },
                 [] { of_process().after_fork(true); });
}

std::string ProgramMemory::obstacle() const {
  if (is_private_) return "DDL_MPI_MEMORY=private";
  if (drives_gpus()) return "a driver of GPUs may know the addresses of pages";
  return has_pinned_pages() ? "the process has pinned or locked pages" : "";
}

void ProgramMemory::add(void* block, std::size_t bytes) noexcept {
  if (Lock::is_held) return;
  const Lock lock(*this);
  try {
    blocks_.insert_or_assign(static_cast<Place>(block), Block{bytes});
  } catch (const std::bad_alloc&) {
    // The block is not moved.
  }
}

std::size_t ProgramMemory::remove(void* block, bool keeps) noexcept {
  if (Lock::is_held) return 0;
  const auto place = static_cast<Place>(block);
  for (;;) {
    decltype(moved_)::node_type node;
    {
      const Lock lock(*this);
      const auto found = blocks_.find(place);
      if (found == blocks_.end()) return 0;
      const std::size_t bytes = found->second.bytes;
      const auto first = moved_.lower_bound(place);
      if (first == moved_.end() || first->first >= place + bytes) {
        blocks_.erase(found);
        return bytes;
      }
      node = moved_.extract(first);
    }
    const Moved& moved = node.mapped();
    if (map_private(node.key(), moved.bytes, keeps ? moved.memory.get() : nullptr)) continue;
    const Lock lock(*this);
    lost_.insert(std::move(node));
  }
}

ProgramMemory::Leases ProgramMemory::lease(collectives::Request& request, const Context& context) {
  const std::size_t element = size_of(request.type);
  collectives::Buffers& buffers = request.buffers;
  // Moves the address of element 0 as far as the elements of the range move.
  const auto replace = [&](auto*& data, std::size_t begin, std::size_t end) {
    if (end <= begin || (end - begin) * element < least_moved_) return std::shared_ptr<std::byte>();
    Place place = const_cast<Place>(data) + begin * element;
    std::shared_ptr<std::byte> memory = lease(place, (end - begin) * element, context);
    if (memory) data = place - begin * element;
    return memory;
  };
  const std::size_t input_end = std::min(buffers.input_end, request.elements);
  if (buffers.input != buffers.output) {
    return {replace(buffers.input, buffers.input_begin, input_end),
            replace(buffers.output, buffers.begin, buffers.end)};
  }
  Leases leases{replace(buffers.output, std::min(buffers.begin, buffers.input_begin),
                        std::max(buffers.end, input_end))};
  buffers.input = buffers.output;
  return leases;
}

/// The shared memory of [data, data + bytes), which `data` then points to; null if it is not shared.
std::shared_ptr<std::byte> ProgramMemory::lease(Place& data, std::size_t bytes, const Context& context) {
  {
    const Lock lock(*this);
    std::shared_ptr<std::byte> memory = find(data, bytes);
    if (memory || !is_due(data, bytes)) return memory;
  }
  const std::lock_guard moving(moving_);
  move(data, whole_pages(bytes), context);
  const Lock lock(*this);
  return find(data, bytes);
}

std::shared_ptr<std::byte> ProgramMemory::find(Place& data, std::size_t bytes) const {
  const auto next = moved_.upper_bound(data);
  if (next == moved_.begin()) return nullptr;
  const auto& [start, moved] = *std::prev(next);
  if (data + bytes > start + moved.bytes) return nullptr;
  data = moved.memory.get() + (data - start);
  return moved.memory;
}

/// Counts a use of the block that holds the range. Whether the range is to be moved now.
bool ProgramMemory::is_due(Place data, std::size_t bytes) {
  const auto next = blocks_.upper_bound(data);
  if (!moves_ || next == blocks_.begin()) return false;
  auto& [start, block] = *std::prev(next);
  const Place end = data + bytes;
  const Place block_end = start + block.bytes;
  if (end > block_end || !starts_page(data) || !(starts_page(end) || end == block_end)) return false;
  if (++block.uses < uses_before_move(bytes) || !holds_parts_whole(data, whole_pages(bytes))) return false;
  block.uses = 0;
  return true;
}

/// Whether what has been moved of the range was moved as a part of it.
bool ProgramMemory::holds_parts_whole(Place data, std::size_t bytes) const {
  const auto ends_after = [](auto moved, Place place) { return moved->first + moved->second.bytes > place; };
  const auto first = moved_.lower_bound(data);
  const auto behind = moved_.lower_bound(data + bytes);
  return (first == moved_.begin() || !ends_after(std::prev(first), data)) &&
         (first == behind || !ends_after(std::prev(behind), data + bytes));
}

/// Moves the pages, unless another thread, which reads them in another call, has done so meanwhile.
void ProgramMemory::move(Place data, std::size_t bytes, const Context& context) {
  {
    const Lock lock(*this);
    Place place = data;
    if (!moves_ || find(place, bytes) || !holds_parts_whole(data, bytes)) return;
  }
  std::shared_ptr<std::byte> memory;
  std::string reason = obstacle();
  try {
    if (reason.empty())
      memory = std::static_pointer_cast<std::byte>(allocate_bytes(context, bytes).release());
  } catch (const Error& error) {
    reason = error.what();
  }
  if (reason.empty() && !map_shared(data, bytes, memory.get())) reason = "it cannot be mapped";
  if (!reason.empty()) {
    context.log().debug(fmt::format("memory from malloc stays private from now on: {}", reason));
  }
  std::map<Place, Moved> parts;  // their memory is released without the lock
  const Lock lock(*this);
  moves_ = reason.empty();
  if (!moves_) return;
  for (auto part = moved_.lower_bound(data); part != moved_.end() && part->first < data + bytes;) {
    parts.insert(moved_.extract(part++));
  }
  moved_.emplace(data, Moved{bytes, std::move(memory)});
}

/// A child shares the moved pages with its parent until it has copied them, so the parent waits for that.
void ProgramMemory::before_fork() noexcept {
  moving_.lock();
  mutex_.lock();
  Lock::is_held = true;
  if (moved_.empty() || pipe2(fork_pipe_.data(), O_CLOEXEC) != 0) fork_pipe_ = {-1, -1};
}

void ProgramMemory::after_fork(bool is_child) noexcept {
  if (is_child) {
    for (const auto& [place, moved] : moved_) map_private(place, moved.bytes, moved.memory.get());
    lost_.merge(moved_);  // the parent's
    moves_ = false;
  }
  if (fork_pipe_[0] != -1) {
    // The parent's read returns when the child closes the other end.
    close(fork_pipe_[1]);
    char nothing = 0;
    while (!is_child && read(fork_pipe_[0], &nothing, 1) == -1 && errno == EINTR) continue;
    close(fork_pipe_[0]);
  }
  Lock::is_held = false;
  mutex_.unlock();
  moving_.unlock();
}

}  // namespace ddl::mpi
