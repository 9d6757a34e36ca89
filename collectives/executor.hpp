#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collectives/engine/prepared_program.hpp"
#include "collectives/transport.hpp"
#include "ddl/data_type.hpp"
#include "ddl/topology/rank_map.hpp"

namespace ddl::collectives {

/// The call that is being executed, for messages and for the arithmetic.
struct Operation {
  const char* name;  ///< "all_reduce", ...
  std::uint64_t sequence;
  std::byte* data;
  std::size_t count;
  DataType type;
  ReduceOp op;
  const Operation* on_behalf_of = nullptr;  ///< The call that messages name in place of this one.
};

/// Runs one rank's programs over a transport, in the caller's thread, as `topology::Program` says: the next
/// step of every stream whose conflicts are over may progress, in whatever order its bytes can move; local
/// steps run as soon as they can, the first of the list first. Reduces straight from the transport's memory
/// into the caller's. A call with a program that was run before allocates nothing.
///
/// Errors: `timeout` and `peer_failed`; both name the collective, the plan, the peers that are waited for and
/// the phases in which they are.
class Executor {
 public:
  /// `spins`: how many times to look again before the core is offered to others; 0 where ranks
  /// outnumber cores.
  Executor(Transport& transport, const topology::RankMap& map, int rank, int spins);

  /// `operation.count` must be the program's. Returns when all steps are complete and what was sent goes on
  /// without this rank.
  void run(const PreparedProgram& program, const Operation& operation, Clock::time_point deadline);

 private:
  /// How far a stream has come.
  struct Progress {
    std::uint32_t position = 0;        // of its current step in the program's order
    std::size_t done = 0;              // bytes of that step
    std::array<std::byte, 8> carry{};  // the start of an element whose end has not come yet
    std::size_t carried = 0;
  };

  void start(const PreparedProgram& program);
  bool sweep();
  [[nodiscard]] const topology::Step& current(std::uint32_t stream) const;
  [[nodiscard]] bool may_progress(std::uint32_t stream) const;
  bool advance(std::uint32_t stream);
  bool advance_send(const topology::Step& step, Progress& progress);
  bool advance_receive(const topology::Step& step, Progress& progress);
  bool advance_reduce(const topology::Step& step, Progress& progress);
  void complete(std::uint32_t step);
  void run_local_steps();
  void run_local(const topology::Step& step);
  void sleep(Clock::time_point deadline);
  void flush(Clock::time_point deadline);
  [[nodiscard]] std::byte* at(std::size_t element) const;
  [[nodiscard]] std::size_t bytes_of(const topology::Step& step) const;
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] std::string describe_plan() const;
  [[nodiscard]] std::string describe_peers() const;
  [[nodiscard]] std::string rank_and_host(int rank) const;
  [[noreturn]] void throw_timeout() const;

  Transport& transport_;
  const topology::RankMap& map_;
  int rank_;
  int spins_;
  Operation operation_{};
  std::size_t element_ = 1;  // bytes
  Clock::time_point started_;
  const PreparedProgram* program_ = nullptr;
  std::size_t unfinished_ = 0;         // steps
  std::vector<std::uint32_t> before_;  // by step: how many must be complete before it starts
  std::vector<Progress> progress_;     // by stream
  std::vector<std::uint32_t> active_;  // streams whose current step has started
  std::vector<std::uint32_t> local_;   // local steps that may run: a heap, the lowest on top
  std::vector<char> gone_;             // by index in active_: its peer had left before the last look
  std::unique_ptr<std::byte[]> scratch_;
  std::size_t scratch_bytes_ = 0;
};

}  // namespace ddl::collectives
