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

/// Does calls on devices' memory through a network, one after the other: all members the same ones, which
/// messages tell. A call goes in parts that fit the memory here, each by a program: the steps of the call's
/// plan, whose messages all go through the network. One thread, but for the constructor.
class NetworkCalls {
 public:
  /// On the device that is selected. Refers to all of them. Twice `staging_bytes` of device memory, and
  /// 16 MiB. On this rank alone. Throws `unsupported` if there is no more, `invalid_argument` for too few.
  NetworkCalls(GroupMembers& members, collectives::Network& network, collectives::device::Gate& gate,
               std::size_t staging_bytes);

  /// Returns when the device has done all. Throws as NetworkExecutor::run.
  void run(const DeviceCall& call);
  /// After the last call: also finds out whether it was the last one on all ranks.
  void conclude();
  [[nodiscard]] NetworkExecutor& executor() noexcept { return executor_; }

 private:
  /// Collective, root, count, type, the plan's hash.
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
  DeviceBytes work_;  // partial results that are not the output's
  NetworkExecutor executor_;
  const Prepared meeting_;
  std::map<Key, Prepared> programs_;
  std::map<std::uint64_t, std::size_t> scratch_factors_;  // by the plan's hash
  std::uint64_t rounds_ = 0;                              // programs that have begun
  std::uint64_t history_ = 0;                             // of calls
};

}  // namespace ddl::device
