#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "collectives/program/prepared_program.hpp"
#include "collectives/transports/network/network.hpp"
#include "ddl/device/runtime/cuda_handles.hpp"
#include "ddl/device/runtime/dimension_group.hpp"
#include "ddl/device/ucx/network_executor.hpp"

namespace ddl::device {

/// Runs calls on device memory through a network, one after the other. Messages carry a fingerprint, by which
/// members check that they make the same calls. A call is cut into parts that fit in the staging memory; each
/// part is a program, the lowered plan of the call with all messages on the network. Apart from the
/// constructor, only one thread may use it.
class NetworkCalls {
 public:
  /// Uses the selected device, and allocates twice `staging_bytes` and 16 MiB of its memory. The arguments
  /// must outlive the object. Not collective. Throws `unsupported` without enough device memory,
  /// `invalid_argument` if `staging_bytes` is too small.
  NetworkCalls(GroupMembers& members, collectives::Network& network, collectives::device::Gate& gate,
               std::size_t staging_bytes);

  /// Returns when the device has completed the call. Throws as NetworkExecutor::run.
  void run(const DeviceCall& call);
  /// To be called after the last call: checks that it was the last call on all ranks.
  void conclude();
  [[nodiscard]] NetworkExecutor& executor() noexcept { return executor_; }

 private:
  /// Collective, root, count, type, hash of the plan.
  using Key = std::tuple<topology::Collective, int, std::size_t, DataType, std::uint64_t>;
  using Prepared = std::shared_ptr<const collectives::PreparedProgram>;

  [[nodiscard]] std::size_t most_at_once(const DeviceCall& call);
  [[nodiscard]] const Prepared& program_of(const DeviceCall& call, std::size_t count);
  [[nodiscard]] Prepared prepared(topology::Program program, std::size_t elements, DataType type) const;
  void run_part(const DeviceCall& call, std::size_t first, std::size_t count);
  void reduce_scatter_part(const DeviceCall& call, std::size_t first, std::size_t count);
  void run_program(const DeviceCall& call, const Prepared& program, collectives::Buffers buffers);
  void copy(std::byte* to, const std::byte* from, std::size_t bytes);
  void meet();
  void run_next(const Prepared& program, const collectives::Buffers& buffers, DataType type, ReduceOp op);

  GroupMembers& members_;
  const std::size_t staging_bytes_;
  DeviceBytes work_;  // partial results that do not belong in the output
  NetworkExecutor executor_;
  const Prepared meeting_;
  std::map<Key, Prepared> programs_;
  std::map<std::uint64_t, std::size_t> scratch_factors_;  // by the plan's hash
  std::uint64_t rounds_ = 0;                              // programs started
  std::uint64_t history_ = 0;                             // hash of all calls so far
};

}  // namespace ddl::device
