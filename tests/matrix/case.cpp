#include "matrix/case.hpp"

#include <fmt/format.h>

#include <array>

#include "matrix/pairwise.hpp"
#include "matrix/plan_family.hpp"

namespace matrix {

using ddl::DataType;
using ddl::ReduceOp;
using ddl::topology::Collective;

namespace {

constexpr std::array collectives = {Collective::all_reduce, Collective::reduce_scatter,
                                    Collective::all_gather, Collective::broadcast, Collective::reduce};
constexpr std::array families = {
    Family::chosen,   Family::split,      Family::ring,        Family::halving_doubling, Family::two_shot,
    Family::one_shot, Family::tree,       Family::double_tree, Family::rings_in_rings,   Family::mixed,
    Family::ragged,   Family::mode_rings, Family::mode_mpi};
constexpr std::array transports = {Transport::threads, Transport::shared_memory, Transport::ucx,
                                   Transport::mpi,     Transport::hosts,         Transport::hosts_by_turns};
constexpr std::array types = {DataType::u8,   DataType::i32, DataType::i64, DataType::f16,
                              DataType::bf16, DataType::f32, DataType::f64};
constexpr std::array ops = {ReduceOp::sum, ReduceOp::avg, ReduceOp::min, ReduceOp::max, ReduceOp::prod};
constexpr std::array all_values = {Values::integers, Values::fractions, Values::not_a_number};
constexpr std::array memories = {Memory::registered, Memory::plain, Memory::shifted, Memory::mixed};
constexpr std::array counts = {Count::none,          Count::one,   Count::ranks_less_one, Count::ranks,
                               Count::ranks_and_one, Count::prime, Count::large};
constexpr std::size_t prime = 1009;
constexpr std::size_t large = (std::size_t{1} << 20U) + 1;

bool reduces(Collective collective) noexcept {
  return collective != Collective::all_gather && collective != Collective::broadcast;
}
bool is_float(DataType type) noexcept {
  return type != DataType::u8 && type != DataType::i32 && type != DataType::i64;
}

std::string_view to_string(Memory memory) noexcept {
  constexpr std::array<std::string_view, 4> names = {"registered", "plain", "shifted", "mixed"};
  return names[static_cast<std::size_t>(memory)];
}
std::string_view to_string(Values values) noexcept {
  constexpr std::array<std::string_view, 3> names = {"integers", "fractions", "NaN"};
  return names[static_cast<std::size_t>(values)];
}

// The parameters of the cover; those with many constraints come first.
enum Parameter : std::size_t {
  collective_at,
  family_at,
  ranks_at,
  transport_at,
  type_at,
  op_at,
  values_at,
  place_at,
  memory_at,
  count_at,
  call_at,
  parameters,
};

constexpr std::array<std::size_t, parameters> sizes = {collectives.size(),
                                                       families.size(),
                                                       most_ranks,
                                                       transports.size(),
                                                       types.size(),
                                                       ops.size(),
                                                       all_values.size(),
                                                       2,
                                                       memories.size(),
                                                       counts.size(),
                                                       2};

void set(Case& one, std::size_t parameter, int value) {
  const auto v = static_cast<std::size_t>(value);
  switch (parameter) {
    case collective_at:
      one.collective = collectives[v];
      break;
    case family_at:
      one.family = families[v];
      break;
    case ranks_at:
      one.ranks = value + 1;
      break;
    case transport_at:
      one.transport = transports[v];
      break;
    case type_at:
      one.type = types[v];
      break;
    case op_at:
      one.op = ops[v];
      break;
    case values_at:
      one.values = all_values[v];
      break;
    case place_at:
      one.in_place = value == 1;
      break;
    case memory_at:
      one.memory = memories[v];
      break;
    case count_at:
      one.count = counts[v];
      break;
    case call_at:
      one.is_async = value == 1;
      break;
    default:
      break;
  }
}

/// Whether two values may occur together. All constraints of `is_possible` are between two parameters.
bool allowed(std::size_t p, int a, std::size_t q, int b) {
  if (p > q) return allowed(q, b, p, a);
  Case one;
  set(one, p, a);
  set(one, q, b);
  if (p == collective_at && q == op_at) return reduces(one.collective) || one.op == ReduceOp::sum;
  if (p == collective_at && q == family_at) return has_plan(one.family, one.collective, most_ranks);
  if (p == family_at && q == ranks_at) {
    for (const Collective collective : collectives) {
      if (has_plan(one.family, collective, one.ranks)) return true;
    }
    return false;
  }
  if (p == family_at && q == transport_at) {
    return one.family != Family::mode_mpi || one.transport != Transport::threads;
  }
  if (p == type_at && q == values_at) return is_float(one.type) || one.values == Values::integers;
  if (p == place_at && q == memory_at) return !one.in_place || one.memory != Memory::mixed;
  return true;
}

}  // namespace

std::string_view to_string(Transport transport) noexcept {
  constexpr std::array<std::string_view, 6> names = {"threads", "shared_memory", "ucx",
                                                     "mpi",     "hosts",         "hosts_by_turns"};
  return names[static_cast<std::size_t>(transport)];
}

std::string_view to_string(Family family) noexcept {
  constexpr std::array<std::string_view, 13> names = {
      "chosen",      "split",          "ring",  "halving_doubling", "two_shot",   "one_shot", "tree",
      "double_tree", "rings_in_rings", "mixed", "ragged",           "mode_rings", "mode_mpi"};
  return names[static_cast<std::size_t>(family)];
}

std::string to_string(const Case& one) {
  return fmt::format(
      "{} {} {} of {} {} elements {}, {} memory, {}; {} ranks, {}, {}", to_string(one.collective),
      reduces(one.collective) ? to_string(one.op) : "-", to_string(one.type), elements_of(one),
      to_string(one.values), one.in_place ? "in place" : "out of place", to_string(one.memory),
      one.is_async ? "async" : "blocking", one.ranks, to_string(one.transport), to_string(one.family));
}

std::size_t elements_of(const Case& one) noexcept {
  const auto n = static_cast<std::size_t>(one.ranks);
  const bool has_pieces =
      one.collective == Collective::reduce_scatter || one.collective == Collective::all_gather;
  switch (one.count) {
    case Count::none:
      return 0;
    case Count::one:
      return 1;
    case Count::ranks_less_one:
      return n - 1;
    case Count::ranks:
      return n;
    case Count::ranks_and_one:
      return n + 1;
    case Count::prime:
      return prime;
    case Count::large:
      return has_pieces ? large / n + 1 : large;
    case Count::given:
      return one.given;
  }
  return 0;
}

bool is_possible(const Case& one) {
  if (!reduces(one.collective) && one.op != ReduceOp::sum) return false;
  if (!is_float(one.type) && one.values != Values::integers) return false;
  if (one.in_place && one.memory == Memory::mixed) return false;
  if (one.family == Family::mode_mpi && one.transport == Transport::threads) return false;
  return has_plan(one.family, one.collective, one.ranks);
}

std::vector<Case> pairwise_cases() {
  PairwiseProblem problem;
  problem.values.assign(sizes.begin(), sizes.end());
  problem.allowed = allowed;
  std::vector<Case> result;
  for (const Row& row : pairwise_cover(problem)) {
    Case one;
    for (std::size_t p = 0; p < row.size(); ++p) set(one, p, row[p]);
    result.push_back(one);
  }
  return result;
}

std::vector<Case> all_cases(int ranks, Transport transport, Family family) {
  std::vector<Case> result;
  std::size_t turn = static_cast<std::size_t>(ranks);
  Case one;
  one.ranks = ranks;
  one.transport = transport;
  one.family = family;
  for (const Collective collective : collectives) {
    for (const DataType type : types) {
      for (const Values values : all_values) {
        for (const Count count : counts) {
          one.collective = collective;
          one.type = type;
          one.values = values;
          one.count = count;
          const std::size_t large_turn = turn++;
          for (std::size_t k = 0; k < ops.size() * 2; ++k) {
            one.op = ops[k / 2];
            one.in_place = k % 2 == 1;
            one.is_async = turn % 2 == 0;
            one.memory = memories[turn / 2 % memories.size()];
            if (one.in_place && one.memory == Memory::mixed) one.memory = Memory::plain;
            const std::size_t choices = reduces(collective) ? ops.size() * 2 : 2;
            if (count == Count::large && k != large_turn % choices) continue;
            if (!is_possible(one)) continue;
            result.push_back(one);
            ++turn;
          }
        }
      }
    }
  }
  return result;
}

std::vector<Transport> all_transports() { return {transports.begin(), transports.end()}; }
std::vector<Family> all_families() { return {families.begin(), families.end()}; }

}  // namespace matrix
