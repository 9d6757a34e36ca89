#include "collectives/memory/host_layout.hpp"

#include <algorithm>
#include <bit>

#include "collectives/memory/mapping.hpp"

namespace ddl::collectives {
namespace {

// No page holds two of the parts.
constexpr std::size_t part_alignment = std::size_t{64} << 10;

/// `most` for up to 16 members, then less, so that the whole grows with the number of pairs only.
std::size_t shrunk(std::size_t most, std::size_t least, std::size_t members) {
  return members <= 16 ? most : std::max(least, std::bit_floor(most * 16 / members));
}

}  // namespace

HostLayout::HostLayout(int members, std::size_t heap_bytes) noexcept {
  const auto n = static_cast<std::size_t>(members);
  notices_per_ring = shrunk(64, 8, n);
  parcel_bytes = shrunk(4096, 256, n);

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
  notices = append(n * n * notices_per_ring * sizeof(Notice), part_alignment);
  parcels = append(n * n * notices_per_ring * parcel_bytes, part_alignment);
  heaps = append(n * heap_bytes, Mapping::huge_page);
  end = place;
}

std::uint64_t HostLayout::signature() noexcept {
  constexpr std::uint64_t version = 3;
  std::uint64_t signature = version;
  for (const std::size_t size : {sizeof(HostHeader), sizeof(MemberState), sizeof(RingState), sizeof(Notice),
                                 sizeof(Doorbell), sizeof(FlightTape)}) {
    signature = signature * 1009 + size;
  }
  return signature;
}

}  // namespace ddl::collectives
