#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "collectives/transport.hpp"
#include "ddl/data_type.hpp"
#include "ddl/topology/rank_map.hpp"
#include "ddl/topology/schedule.hpp"

namespace ddl::collectives {

/// The call that is being executed, for messages and for the arithmetic.
struct Operation {
  const char* name;  ///< "all_reduce", ...
  std::uint64_t sequence;
  std::byte* data;
  std::size_t count;
  DataType type;
  ReduceOp op;
};

/// Runs one rank's steps over a transport, in the caller's thread. Reduces straight from the
/// transport's memory into the caller's buffer. Errors: `timeout` and `peer_failed`; both name the
/// collective and the peers that are waited for.
class Executor {
 public:
  /// `spins`: how many times to look again before the core is offered to others; 0 where ranks
  /// outnumber cores.
  Executor(Transport& transport, const topology::RankMap& map, int rank, int spins);

  void run(const topology::Steps& steps, const Operation& operation, Clock::time_point deadline);

 private:
  /// A step of the current round.
  struct Progress {
    topology::Step step;
    std::size_t done = 0;              // bytes
    std::size_t bytes = 0;             // of the whole step
    std::array<std::byte, 8> carry{};  // the start of an element whose end has not come yet
    std::size_t carried = 0;
  };

  void run_round(Clock::time_point deadline);
  bool sweep();
  bool advance(Progress& progress);
  bool advance_send(Progress& progress);
  bool advance_receive(Progress& progress);
  bool advance_reduce(Progress& progress);
  [[nodiscard]] bool follows_unfinished(std::size_t index) const;
  void sleep(Clock::time_point deadline);
  void flush(Clock::time_point deadline);
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] std::string describe_peers() const;
  [[nodiscard]] std::string rank_and_host(int rank) const;
  [[noreturn]] void throw_timeout() const;

  Transport& transport_;
  const topology::RankMap& map_;
  int rank_;
  int spins_;
  Operation operation_{};
  Clock::time_point started_;
  std::vector<Progress> round_;
  std::size_t unfinished_ = 0;
  std::vector<char> gone_;  // per step of the round: its peer had left before the last look
};

}  // namespace ddl::collectives
