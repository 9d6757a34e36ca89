#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace ddl {
class Context;
}

namespace ddl::collectives {
struct Request;
}

namespace ddl::mpi {

/// The large blocks that the program has from malloc. Moves buffers that collectives use again and again into
/// memory that the ranks of a host share, so that collectives on them need no copies inside the host.
///
/// A buffer is moved by mapping pages of shared memory, with its contents, over its own pages: the program
/// sees the same bytes at the same addresses. For the moment between copying and mapping, nothing else may
/// write to these pages. So malloc's large blocks consist of whole pages (memory_calls.cpp), and only pages
/// are moved that lie in a call's buffer, which MPI forbids other threads to write to. Before a block is
/// freed, and in forked children, its pages become private again.
///
/// Nothing is moved where a device may know pages by their physical addresses (GPUs, network cards that have
/// registered memory), and with DDL_MPI_MEMORY=private.
///
/// Thread-safe. It is called by malloc, and so itself may allocate only small blocks.
class ProgramMemory {
 public:
  /// Never destroyed: blocks are freed until the process ends.
  static ProgramMemory& of_process() noexcept;

  static constexpr std::size_t smallest_page = 4096;
  static constexpr std::size_t smallest_block = 16 * smallest_page;
  /// The least bytes of blocks to be added: 16 pages.
  [[nodiscard]] std::size_t least_block() const noexcept { return least_block_; }
  [[nodiscard]] std::size_t page() const noexcept { return page_; }
  [[nodiscard]] std::size_t whole_pages(std::size_t bytes) const noexcept {
    return (bytes + page_ - 1) / page_ * page_;
  }

  /// Why no memory is moved at present; empty if it is.
  [[nodiscard]] std::string obstacle() const;

  /// Adds a block that starts with a page, and of which all pages are the program's.
  void add(void* block, std::size_t bytes) noexcept;
  /// Removes a block, if there is one that starts at the address, and makes its pages private again.
  /// `keeps`: with their contents, not zeroed. Returns its size, or 0.
  std::size_t remove(void* block, bool keeps) noexcept;

  /// The shared memory of a call's buffers, to be kept until the call is over.
  using Leases = std::array<std::shared_ptr<std::byte>, 2>;
  /// Replaces the addresses of buffers in shared memory by those that other ranks know. Moves a buffer there
  /// when it has been used often enough. Throws `transport` if there was memory at first, and then none.
  Leases lease(collectives::Request& request, const Context& context);

 private:
  using Place = std::byte*;
  struct Block {
    std::size_t bytes = 0;
    std::size_t uses = 0;  // by calls, of pages that are not shared
  };
  /// Pages in shared memory. `memory` is where other ranks have them.
  struct Moved {
    std::size_t bytes = 0;
    std::shared_ptr<std::byte> memory;
  };
  class Lock;

  ProgramMemory();

  [[nodiscard]] bool starts_page(const void* data) const noexcept {
    return reinterpret_cast<std::uintptr_t>(data) % page_ == 0;
  }

  std::shared_ptr<std::byte> lease(Place& data, std::size_t bytes, const Context& context);
  void move(Place data, std::size_t bytes, const Context& context);

  // These need the lock.
  std::shared_ptr<std::byte> find(Place& data, std::size_t bytes) const;
  [[nodiscard]] bool is_due(Place data, std::size_t bytes);
  [[nodiscard]] bool holds_parts_whole(Place data, std::size_t bytes) const;

  void before_fork() noexcept;
  void after_fork(bool is_child) noexcept;

  const std::size_t page_;
  const bool is_private_;  // DDL_MPI_MEMORY
  const std::size_t least_block_;
  const std::size_t least_moved_;
  std::mutex moving_;  // taken before `mutex_`
  std::mutex mutex_;
  bool moves_ = true;
  std::map<Place, Block> blocks_;
  std::map<Place, Moved> moved_;      // do not overlap
  std::multimap<Place, Moved> lost_;  // whose memory is never released
  std::array<int, 2> fork_pipe_ = {-1, -1};
};

}  // namespace ddl::mpi
