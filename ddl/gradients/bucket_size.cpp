#include "ddl/gradients/bucket_size.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "ddl/topology/schedule.hpp"

namespace ddl {
namespace {

constexpr std::size_t smallest = std::size_t{16} << 10;
constexpr std::size_t largest = std::size_t{32} << 20;
/// One rank has nothing to hide, but makes means of each bucket once it is complete: what backward has just
/// written is then still near the processor.
constexpr std::size_t near = std::size_t{64} << 10;
/// What takes less is not worth hiding.
constexpr double short_us = 100;

double predicted_us(Context& context, std::size_t bytes) {
  const auto plan = context.communicator().plan(topology::Collective::all_reduce, bytes, DataType::f32);
  // Plans are for classes of sizes.
  return plan.predicted_us * static_cast<double>(bytes) /
         static_cast<double>(std::max<std::uint64_t>(plan.bytes, 1));
}

std::size_t cheap_bytes(Context& context) {
  std::vector<std::size_t> sizes;
  std::vector<double> costs;
  for (std::size_t bytes = smallest; bytes <= largest; bytes *= 2) {
    sizes.push_back(bytes);
    costs.push_back(predicted_us(context, bytes) / static_cast<double>(bytes));
  }
  const double best = *std::ranges::min_element(costs);
  const auto cheap = std::ranges::find_if(costs, [&](double cost) { return cost <= 1.05 * best; });
  return sizes[static_cast<std::size_t>(cheap - costs.begin())];
}

}  // namespace

std::size_t chosen_bucket_bytes(Context& context, std::size_t total) {
  if (context.size() == 1) return near;
  std::int64_t bytes = 0;
  if (context.is_root()) {
    const std::size_t twentieth = std::max(total / 20, smallest);
    const bool is_short = predicted_us(context, total) < short_us;
    bytes = static_cast<std::int64_t>(is_short ? std::max(total, smallest)
                                               : std::min(cheap_bytes(context), twentieth));
  }
  context.communicator().broadcast(std::span(&bytes, 1));
  return static_cast<std::size_t>(bytes);
}

}  // namespace ddl
