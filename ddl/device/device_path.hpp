#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "ddl/data_type.hpp"
#include "ddl/device.hpp"
#include "ddl/error.hpp"
#include "ddl/topology/plan.hpp"
#include "ddl/topology/schedule.hpp"

namespace ddl::device {

/// What ranks compare of a call, and are told of it.
struct CalledAs {
  topology::Collective collective;
  std::size_t count;
  DataType type;
  ReduceOp op;
  int root;
};

/// A call of a user's, or a part that a path makes of one. Paths may keep it after the user's has returned.
struct DeviceCall {
  topology::Collective collective;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::size_t count = 0;
  DataType type = DataType::u8;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  DeviceStream stream = nullptr;
  std::optional<CalledAs> part_of = {};
  /// How the members of a group do it, where there is a choice, and the hash of the plan that it is of.
  topology::Algorithm algorithm = topology::Algorithm::ring;
  std::uint64_t plan = 0;
  /// For a group that runs steps: those of the plan, which outlives the call.
  const topology::Plan* steps = nullptr;
  bool is_captured = false;  ///< The stream is being captured: what is queued runs later, or often, or never.

  /// As the user's, also where parts of different calls are alike.
  [[nodiscard]] CalledAs called() const noexcept {
    return part_of.value_or(CalledAs{collective, count, type, op, root});
  }
};

inline bool reduces(topology::Collective collective) noexcept {
  return collective != topology::Collective::broadcast && collective != topology::Collective::all_gather &&
         collective != topology::Collective::barrier;
}

/// Pieces of `count` elements that a call is about: one for each rank, or one.
inline std::size_t pieces_of(topology::Collective collective, int ranks) noexcept {
  return topology::has_pieces(collective) ? static_cast<std::size_t>(ranks) : 1;
}

/// What has gone wrong on a rank's device.
struct PathFailure {
  Error error;
  std::uint64_t call =
      0;  ///< Which of the path's calls it is about, from 1 on; 0: none, or one that is captured.
  std::string captured = {};  ///< The captured call that it is about.
};

/// How collectives of a communicator's ranks are done. Calls are valid, and the same on all ranks. One thread
/// makes them; another one may look meanwhile, and abort.
class DevicePath {
 public:
  DevicePath() = default;
  DevicePath(const DevicePath&) = delete;
  DevicePath& operator=(const DevicePath&) = delete;
  virtual ~DevicePath() = default;

  /// Queues the call. Throws `internal` with what CUDA, or a library, says.
  virtual void run(const DeviceCall& call) = 0;
  /// Whether calls on a stream that is being captured are right each time the graph runs.
  [[nodiscard]] virtual bool can_be_captured(const DeviceCall& /*call*/) { return false; }
  /// Whether reductions of floats have the host's bits in reproducible contexts.
  [[nodiscard]] virtual bool is_reproducible() const noexcept { return false; }
  /// How many calls are over. Does not wait. Any thread.
  [[nodiscard]] virtual std::uint64_t completed() = 0;
  /// What has gone wrong so far. Does not wait. Any thread.
  [[nodiscard]] virtual std::optional<PathFailure> failure() = 0;
  /// Any thread. Has what waits for other ranks end, and whatever is queued later do nothing.
  virtual void abort() noexcept = 0;
  /// Once all of this rank's calls are done, in order: looks for what `failure` does not know yet.
  /// Collective.
  virtual void settle() {}
  /// Before it goes, once all of this rank's calls are done: collective unless something has failed
  /// (`in_order`).
  virtual void close(bool in_order) noexcept = 0;
};

}  // namespace ddl::device
