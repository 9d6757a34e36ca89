#include <algorithm>

#include "collectives/device/exchange.hpp"

namespace ddl::collectives::device {
namespace {

using topology::Collective;

constexpr std::size_t line_bytes = 128;

std::uint32_t all_of(const Exchange& exchange) { return (1U << static_cast<unsigned>(exchange.ranks)) - 1; }
std::uint32_t only(int rank) { return 1U << static_cast<unsigned>(rank); }

void set_slice(Exchange& exchange, std::size_t count, std::size_t element_bytes) {
  const std::size_t unit = line_bytes / element_bytes;
  const std::size_t units = (count + unit - 1) / unit;
  const auto place = [&](int rank) {
    return std::min(units * static_cast<std::size_t>(rank) / static_cast<std::size_t>(exchange.ranks) * unit,
                    count);
  };
  const std::size_t first = place(exchange.rank);
  exchange.offset = first * element_bytes;
  exchange.elements = place(exchange.rank + 1) - first;
}

}  // namespace

void set_range(Exchange& exchange, Collective collective, std::size_t count, std::size_t element_bytes,
               int root) {
  const bool scatters = collective == Collective::reduce_scatter;
  const bool gathers = collective == Collective::all_gather;
  exchange.sources = exchange.targets = collective == Collective::barrier ? 0 : all_of(exchange);
  if (collective == Collective::broadcast) exchange.sources = only(root);
  if (collective == Collective::reduce) exchange.targets = only(root);
  if (gathers) exchange.sources = only(exchange.rank);
  if (scatters) exchange.targets = only(exchange.rank);
  exchange.source_piece = scatters ? exchange.rank : 0;
  exchange.target_piece = gathers ? exchange.rank : 0;
  exchange.offset = 0;
  exchange.elements = count;
  if (!scatters && !gathers) set_slice(exchange, count, element_bytes);
}

void set_whole(Exchange& exchange, std::size_t count) {
  exchange.sources = all_of(exchange);
  exchange.targets = only(exchange.rank);
  exchange.source_piece = exchange.target_piece = 0;
  exchange.offset = 0;
  exchange.elements = count;
}

}  // namespace ddl::collectives::device
