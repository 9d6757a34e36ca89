#pragma once

#include <nvtx3/nvToolsExt.h>

#include <cstdint>

namespace ddl::device {

/// What the calling thread does while this lives, for NVIDIA's profilers: in the domain "ddl". Some
/// nanoseconds where no profiler is attached.
class NvtxRange {
 public:
  /// `name` lives as long as the program. `bytes`: the payload.
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
