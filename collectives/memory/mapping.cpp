#include "collectives/memory/mapping.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace ddl::collectives {
namespace {

std::size_t whole_pages(std::size_t bytes) noexcept {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

/// Maps `bytes` bytes aligned to a huge page, and unmaps the slack around them. Null on failure.
std::byte* reserve(std::size_t bytes, int protection) noexcept {
  const std::size_t roomy = bytes + Mapping::huge_page;
  if (roomy < bytes) {
    errno = ENOMEM;
    return nullptr;
  }
  void* memory = mmap(nullptr, roomy, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  const auto start = reinterpret_cast<std::uintptr_t>(memory);
  const std::size_t before = (Mapping::huge_page - start % Mapping::huge_page) % Mapping::huge_page;
  auto* const data = static_cast<std::byte*>(memory) + before;
  if (before > 0) munmap(memory, before);
  if (before < Mapping::huge_page) munmap(data + bytes, Mapping::huge_page - before);
  return data;
}

}  // namespace

Mapping Mapping::of_process(std::size_t bytes) noexcept {
  if (bytes > SIZE_MAX / 2) {
    errno = ENOMEM;
    return {};
  }
  bytes = whole_pages(bytes);
  std::byte* const data = reserve(bytes, PROT_READ | PROT_WRITE);
  return data == nullptr ? Mapping() : Mapping(data, bytes);
}

Mapping Mapping::of_file(int fd, std::size_t bytes) noexcept {
  if (bytes > SIZE_MAX / 2) {
    errno = ENOMEM;
    return {};
  }
  bytes = whole_pages(bytes);
  std::byte* const place = reserve(bytes, PROT_NONE);
  if (place == nullptr) return {};
  if (mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0) ==
      MAP_FAILED) {
    const int error = errno;
    munmap(place, bytes);
    errno = error;
    return {};
  }
  // A core dump would read every page of the file and so allocate all of it.
  madvise(place, bytes, MADV_DONTDUMP);
  return {place, bytes};
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace ddl::collectives
