#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

#include "collectives/engine/prepared_program.hpp"
#include "collectives/network/network.hpp"
#include "ddl/data_type.hpp"

namespace ddl::collectives {

/// Where a program's elements are. Element i's first value is at `input` + i; from the program's first write
/// to it on it is at `output` + i if i is in [begin, end), else in memory of the engine's own. With `input`
/// == `output` and all elements in the range, the program runs in place. Addresses of elements that do not
/// exist at that place are only computed, never used.
struct Buffers {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::size_t begin = 0;
  std::size_t end = 0;
  /// Elements that `input` has.
  std::size_t input_begin = 0;
  std::size_t input_end = std::numeric_limits<std::size_t>::max();
};

/// One call of a collective.
struct Call {
  const char* name = "";  ///< "all_reduce", ...
  std::uint16_t communicator = 0;
  std::uint64_t sequence = 0;  ///< In the communicator, from 1 on.
  std::size_t count = 0;       ///< As the caller gave it, for messages.
  Buffers buffers = {};
  DataType type = DataType::u8;
  ReduceOp op = ReduceOp::sum;
  std::shared_ptr<const PreparedProgram> program = nullptr;
  /// From when the call is made; max: none.
  std::chrono::milliseconds deadline = std::chrono::milliseconds::max();
};

}  // namespace ddl::collectives
