#pragma once

#include <cstddef>
#include <span>

#include "ddl/context.hpp"
#include "ddl/device/runtime/dimension_group.hpp"

namespace ddl::device {

/// Reductions of floats in reproducible contexts. Kernels encode the floats as integers, integer reductions
/// add them up, and kernels decode the sums, so that results have the same bits as on the host (see
/// collectives::ReproducibleReductions). A call is cut into parts that fit in the working memory. All calls
/// share that memory, because the caller's streams order the calls.
class ReproducibleCalls {
 public:
  /// The smallest working memory with which any call can be cut into parts.
  [[nodiscard]] static std::size_t least_bytes(int ranks) noexcept;
  /// Whether `call` is a reduction of floats.
  [[nodiscard]] static bool concerns(const DeviceCall& call) noexcept;

  /// Loads all kernels, because loading one later may block behind waiting kernels. `memory` is device memory
  /// of the same size on all ranks. Collective; errors are agreed.
  ReproducibleCalls(const Context& context, std::span<std::byte> memory);

  /// Queues a reduction of floats. The parts that go to `pass_on` are not reductions of floats.
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
