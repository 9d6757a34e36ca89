#pragma once

#include <cstdint>
#include <memory>

#include "ddl/context.hpp"
#include "ddl/device/runtime/cuda_handles.hpp"
#include "ddl/device/runtime/device_path.hpp"
#include "ddl/device/nccl/fingerprint_kernels.hpp"
#include "ddl/device/nccl/nccl_group.hpp"

namespace ddl::device {

/// Compares what ranks call, which NCCL does not: different operations give wrong numbers, and different
/// counts may. After every 64th call 1 KiB of fingerprints are reduced behind it, on its stream: some
/// 10 us. Not thread-safe, but for `differs`.
class Fingerprints {
 public:
  /// Collective; errors are agreed.
  explicit Fingerprints(Context& context);
  Fingerprints(const Fingerprints&) = delete;
  Fingerprints& operator=(const Fingerprints&) = delete;

  /// A call that has been queued. One that is captured is compared with the next one that is not.
  void add(const DeviceCall& call, NcclGroup& group);
  /// Compares what has not been yet.
  void compare(NcclGroup& group, DeviceStream stream);
  /// The first call, from 1 on, that is known to differ; 0: none. Any thread.
  [[nodiscard]] std::uint64_t differs() const noexcept;

 private:
  struct FreeDevice {
    void operator()(std::int64_t* memory) const noexcept { cudaFree(memory); }
  };

  Mixed history_;  // of all calls
  FingerprintBatch batch_;
  std::uint32_t held_ = 0;
  std::unique_ptr<std::int64_t, FreeDevice> numbers_;
  MappedMemory<std::uint64_t> found_;
};

}  // namespace ddl::device
