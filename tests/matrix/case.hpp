#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/data_type.hpp"
#include "ddl/topology/schedule.hpp"

namespace matrix {

/// How ranks reach one another.
enum class Transport : std::uint8_t {
  threads,         ///< Ranks are threads of one process.
  shared_memory,   ///< Processes of one host.
  ucx,             ///< Processes, each on its own emulated host.
  mpi,             ///< As ucx, but MPI carries the data.
  hosts,           ///< Processes on up to three uneven hosts, placed host by host.
  hosts_by_turns,  ///< The same, placed round-robin.
};

/// Which plans are used.
enum class Family : std::uint8_t {
  chosen,  ///< The planner's choice.
  split,   ///< The planner's choice, on a communicator with the ranks in reverse order.
  ring,    ///< One dimension with this algorithm, like the next five.
  halving_doubling,
  two_shot,
  one_shot,
  tree,
  double_tree,
  rings_in_rings,  ///< Two dimensions, 3 chunks.
  mixed,           ///< Two dimensions with different algorithms, ranks in reverse, 2 chunks.
  ragged,          ///< Two groups, the first one larger by two.
  mode_rings,      ///< IBM's -mode r.
  mode_mpi,        ///< IBM's -mode m: what an MPI library would do, over MPI.
};

enum class Memory : std::uint8_t {
  registered,  ///< From `ddl::allocate`.
  plain,
  shifted,  ///< Registered; data begin one element after an aligned address.
  mixed,    ///< Input plain, output registered.
};

/// The kind of the elements' values.
enum class Values : std::uint8_t {
  integers,      ///< All results are exact.
  fractions,     ///< Floats that are rounded on the way.
  not_a_number,  ///< The same, and some are NaN.
};

/// The number of elements; for reduce_scatter and all_gather, of one piece.
enum class Count : std::uint8_t {
  none,
  one,
  ranks_less_one,
  ranks,
  ranks_and_one,
  prime,
  large,
  given,  ///< `Case::given`; not part of covers.
};

struct Case {
  ddl::topology::Collective collective = ddl::topology::Collective::all_reduce;
  Family family = Family::chosen;
  int ranks = 1;
  Transport transport = Transport::threads;
  ddl::DataType type = ddl::DataType::f32;
  ddl::ReduceOp op = ddl::ReduceOp::sum;
  Values values = Values::integers;
  bool in_place = false;
  Memory memory = Memory::registered;
  Count count = Count::one;
  std::size_t given = 0;
  bool is_async = false;
};

constexpr int most_ranks = 16;

std::string_view to_string(Transport transport) noexcept;
std::string_view to_string(Family family) noexcept;
std::string to_string(const Case& one);

/// The count that the call gets.
std::size_t elements_of(const Case& one) noexcept;

/// Whether the case exists: only reductions have ops, only floats have fractions, and so on.
bool is_possible(const Case& one);

/// Cases in which every pair of two parameters' values occurs. Deterministic.
std::vector<Case> pairwise_cases();

/// All possible cases for these ranks, this transport and this family. Memory, blocking or async, and the ops
/// and places of the large count take turns instead of multiplying the cases.
std::vector<Case> all_cases(int ranks, Transport transport, Family family);

std::vector<Transport> all_transports();
std::vector<Family> all_families();

}  // namespace matrix
