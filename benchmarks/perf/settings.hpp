#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/data_type.hpp"
#include "ddl/topology/schedule.hpp"

namespace perf {

enum class BaselineKind { none, mpi, gloo, loop, threads };
std::string_view to_string(BaselineKind kind) noexcept;

/// The settings of a run, from the command line.
struct Settings {
  ddl::topology::Collective collective = ddl::topology::Collective::all_reduce;
  std::size_t smallest = 8;  ///< Smallest size in bytes.
  std::size_t largest = std::size_t{64} << 20U;
  std::size_t factor = 2;     ///< Factor between sizes; unused if there is an increment.
  std::size_t increment = 0;  ///< Increment between sizes in bytes; 0: `factor` applies.
  int iterations = 20;
  int warm_up = 5;
  int calls = 0;           ///< Calls in a timed iteration, back to back; 0: `calls_of` chooses.
  double disturbance = 1;  ///< See Repetitions.
  bool check = true;
  std::vector<ddl::ReduceOp> ops = {ddl::ReduceOp::sum};
  std::vector<ddl::DataType> types = {ddl::DataType::f32};
  int root = 0;  ///< `all_roots`: each rank in turn.
  bool in_place = true;
  bool out_of_place = true;
  bool registered = true;  ///< Whether memory is from `ddl::allocate`.
  BaselineKind baseline = BaselineKind::none;
  bool predict = false;
  std::string json;    ///< File for JSON lines; empty: none.
  int in_process = 0;  ///< Number of ranks as threads; 0: the ranks of the environment.

  static constexpr int all_roots = -1;
};

/// Whether the collective reduces.
bool has_op(ddl::topology::Collective collective) noexcept;

/// Parses the arguments after the program's name. Throws `invalid_argument` with the flag, what was found and
/// what was expected.
Settings parse(ddl::topology::Collective collective, const std::vector<std::string>& arguments);

/// The text of --help.
std::string help(ddl::topology::Collective collective);

/// The sizes in bytes, ascending.
std::vector<std::size_t> sizes(const Settings& settings);

/// The number of calls in a timed iteration for a size. Below 64 KiB a single call is too short for the
/// clock, and compared with the ranks' different times of leaving a barrier.
int calls_of(const Settings& settings, std::size_t bytes) noexcept;

}  // namespace perf
