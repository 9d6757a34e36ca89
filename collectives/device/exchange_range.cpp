#include "collectives/device/exchange_range.hpp"

#include <algorithm>

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
  exchange.sources = exchange.targets = all_of(exchange);
  exchange.source_piece = exchange.target_piece = 0;
  exchange.offset = 0;
  exchange.elements = count;
  switch (collective) {
    case Collective::all_reduce:
      return set_slice(exchange, count, element_bytes);
    case Collective::reduce:
      exchange.targets = only(root);
      return set_slice(exchange, count, element_bytes);
    case Collective::broadcast:
      exchange.sources = only(root);
      return set_slice(exchange, count, element_bytes);
    case Collective::reduce_scatter:
      exchange.targets = only(exchange.rank);
      exchange.source_piece = exchange.rank;
      return;
    case Collective::all_gather:
      exchange.sources = only(exchange.rank);
      exchange.target_piece = exchange.rank;
      return;
    case Collective::barrier:
      exchange.sources = exchange.targets = 0;
      exchange.elements = 0;
      return;
  }
}

void set_whole(Exchange& exchange, std::size_t count) {
  exchange.sources = all_of(exchange);
  exchange.targets = only(exchange.rank);
  exchange.source_piece = exchange.target_piece = 0;
  exchange.offset = 0;
  exchange.elements = count;
}

}  // namespace ddl::collectives::device
