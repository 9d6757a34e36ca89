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

/// What a run measures: the command line, read.
struct Settings {
  ddl::topology::Collective collective = ddl::topology::Collective::all_reduce;
  std::size_t smallest = 8;  ///< Bytes.
  std::size_t largest = std::size_t{64} << 20U;
  std::size_t factor = 2;     ///< From one size to the next; unused if there is an increment.
  std::size_t increment = 0;  ///< Bytes from one size to the next; 0: by factor.
  int iterations = 20;
  int warm_up = 5;
  int calls = 0;           ///< Back to back in a timed iteration; 0: `calls_of` chooses.
  double disturbance = 1;  ///< See Repetitions.
  bool check = true;
  std::vector<ddl::ReduceOp> ops = {ddl::ReduceOp::sum};
  std::vector<ddl::DataType> types = {ddl::DataType::f32};
  int root = 0;  ///< all_roots: each in turn.
  bool in_place = true;
  bool out_of_place = true;
  bool registered = true;  ///< Memory from `ddl::allocate`.
  BaselineKind baseline = BaselineKind::none;
  bool predict = false;
  std::string json;    ///< A file; empty: none.
  int in_process = 0;  ///< Ranks as threads; 0: the environment says what ranks there are.

  static constexpr int all_roots = -1;
};

/// Whether the collective reduces.
bool has_op(ddl::topology::Collective collective) noexcept;

/// Reads the arguments that follow the program's name. Throws `invalid_argument` naming the flag, what was
/// found and what was expected.
Settings parse(ddl::topology::Collective collective, const std::vector<std::string>& arguments);

/// What --help prints.
std::string help(ddl::topology::Collective collective);

/// Ascending, in bytes.
std::vector<std::size_t> sizes(const Settings& settings);

/// Calls of one timed iteration for a size: one is too short for the clock, and for a barrier's ragged end,
/// below 64 KiB.
int calls_of(const Settings& settings, std::size_t bytes) noexcept;

}  // namespace perf
