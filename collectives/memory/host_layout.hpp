#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/memory/host_memory.hpp"

namespace ddl::collectives {

/// What a `HostMemory` starts with.
struct HostHeader {
  HostMemory::Token token;
  std::uint64_t layout;  ///< `HostLayout::signature`.
  std::uint64_t heap_bytes;
  std::uint32_t members;
};

/// Where the parts of a `HostMemory` are, in bytes from its start. The header is at 0.
struct HostLayout {
  /// `heap_bytes` is of each member; a multiple of a huge page.
  HostLayout(int members, std::size_t heap_bytes) noexcept;

  /// Differs between programs that would not understand each other.
  static std::uint64_t signature() noexcept;

  std::size_t notices_per_ring;
  std::size_t parcel_bytes;
  std::size_t member_states;
  std::size_t tapes;
  std::size_t ring_states;
  std::size_t notices;
  std::size_t parcels;
  std::size_t heaps;
  std::size_t end;
};

}  // namespace ddl::collectives
