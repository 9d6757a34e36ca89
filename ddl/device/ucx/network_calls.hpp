#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "collectives/transports/network/network.hpp"
#include "ddl/device/runtime/device_path.hpp"
#include "ddl/device/ucx/network_executor.hpp"
#include "ddl/device/ucx/open_device_network.hpp"
#include "ddl/device/ucx/recipes.hpp"
#include "ddl/device/ucx/turns.hpp"

namespace ddl::device {

/// Does calls on devices' memory through a network, one after the other: all ranks the same ones, which
/// messages tell. One thread, but for the constructor.
class NetworkCalls {
 public:
  /// On the device that is selected. Refers to network and turns. Twice `staging_bytes` of device memory, and
  /// 16 MiB. On this rank alone. Throws `unsupported` if there is no more, `invalid_argument` for too few.
  NetworkCalls(GroupMembers& members, collectives::Network& network, Turns& turns, std::size_t staging_bytes);

  /// Returns when the device has done all. Throws as NetworkExecutor::run.
  void run(const DeviceCall& call);
  /// After the last call: also finds out whether it was the last one on all ranks.
  void conclude();
  [[nodiscard]] cudaStream_t stream() const noexcept { return executor_.stream(); }

 private:
  struct Part {
    std::size_t first;
    std::size_t elements;
    const collectives::PreparedProgram& program;
  };

  void copy_alone(const DeviceCall& call);
  void do_part(const DeviceCall& call, const Part& part);
  void reduce_scatter_part(const DeviceCall& call, const Part& part);
  void run_program(const DeviceCall& call, const Part& part, const NetworkExecutor::Buffers& buffers);
  void copy_unwritten(const DeviceCall& call, const Part& part, const NetworkExecutor::Buffers& buffers);
  void copy(std::byte* to, const std::byte* from, std::size_t bytes);
  void meet();
  collectives::MessageTag next_round();

  const int rank_;
  const int ranks_;
  DeviceBytes work_;  // partial results that are not the output's
  DeviceBytes scratch_, receiving_;
  NetworkExecutor executor_;
  Recipes recipes_;
  std::uint64_t rounds_ = 0;  // programs that have begun
  Mixed history_;             // of calls
};

}  // namespace ddl::device
