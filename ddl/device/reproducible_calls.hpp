#pragma once

#include <cstddef>
#include <span>

#include "ddl/context.hpp"
#include "ddl/device/runtime/dimension_group.hpp"

namespace ddl::device {

/// In reproducible contexts: reductions of floats become reductions of integers, and kernels before and after
/// them, so that they have the bits of the host's (see collectives::ReproducibleReductions). A call is cut
/// into parts that fit the working memory, which calls use one after the other, as their streams are ordered.
class ReproducibleCalls {
 public:
  /// How much memory there must be so that any call can be cut into parts.
  [[nodiscard]] static std::size_t least_bytes(int ranks) noexcept;
  /// Whether it is a reduction of floats.
  [[nodiscard]] static bool concerns(const DeviceCall& call) noexcept;

  /// Loads the kernels, so that none is loaded while another one waits. `memory`: of the device, as large on
  /// all ranks. Collective; errors are agreed.
  ReproducibleCalls(const Context& context, std::span<std::byte> memory);

  /// Queues a reduction of floats. Its parts are none.
  void run(const DeviceCall& call, const PassOn& pass_on) const;

 private:
  struct Part;
  void reduce(const DeviceCall& call, const PassOn& pass_on) const;
  void reduce_part(const Part& part, const PassOn& pass_on) const;
  void multiply(const DeviceCall& call, const PassOn& pass_on) const;

  const std::size_t rank_;
  const std::size_t ranks_;
  const std::span<std::byte> memory_;
};

}  // namespace ddl::device
