#pragma once

#include <nvtx3/nvToolsExt.h>

#include <cstdint>

namespace ddl::device {

/// Marks the calling thread's work during this object's lifetime for NVIDIA's profilers, in the domain "ddl".
/// Costs some nanoseconds if no profiler is attached.
class NvtxRange {
 public:
  /// `name` must live until the end of the program. `bytes` becomes the range's payload.
  NvtxRange(const char* name, std::uint64_t bytes) noexcept {
    nvtxEventAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = name;
    attributes.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    attributes.payload.ullValue = bytes;
    nvtxDomainRangePushEx(domain(), &attributes);
  }
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
  ~NvtxRange() { nvtxDomainRangePop(domain()); }

 private:
  static nvtxDomainHandle_t domain() noexcept {
    static const nvtxDomainHandle_t own = nvtxDomainCreateA("ddl");
    return own;
  }
};

}  // namespace ddl::device
