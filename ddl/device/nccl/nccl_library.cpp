#include "ddl/device/nccl/nccl_library.hpp"

namespace ddl::device {
namespace {

/// 2.14.3, for ncclCommInitRankConfig.
constexpr int least_version = 21'403;

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10'000, version / 100 % 100, version % 100);
}

}  // namespace

const NcclLibrary& NcclLibrary::get() {
  static const NcclLibrary library;
  return library;
}

NcclLibrary::NcclLibrary() try : library_("libnccl.so.2") {
  const auto bind = [&](auto& function, const char* name) {
    function = library_.required<std::remove_pointer_t<std::remove_reference_t<decltype(function)>>>(name);
  };
  int version = 0;
  if (library_.required<decltype(::ncclGetVersion)>("ncclGetVersion")(&version) != ncclSuccess ||
      version < least_version) {
    fail_with(ErrorCode::unsupported, "found version {} of NCCL, expected {} or later", version_text(version),
              version_text(least_version));
  }
  bind(get_unique_id, "ncclGetUniqueId");
  bind(init, "ncclCommInitRankConfig");
  bind(finalize, "ncclCommFinalize");
  bind(destroy, "ncclCommDestroy");
  bind(abort, "ncclCommAbort");
  revoke = library_.optional<ncclResult_t(ncclComm_t, int)>("ncclCommRevoke");
  bind(async_error, "ncclCommGetAsyncError");
  bind(all_reduce, "ncclAllReduce");
  bind(reduce_scatter, "ncclReduceScatter");
  bind(all_gather, "ncclAllGather");
  bind(broadcast, "ncclBroadcast");
  bind(reduce, "ncclReduce");
  bind(error_string_, "ncclGetErrorString");
  bind(last_error_, "ncclGetLastError");
} catch (const Error& error) {
  fail_with(ErrorCode::unsupported,
            "NCCL cannot be used: {}. Install it (Debian: libnccl2; PyTorch's packages have it in "
            "nvidia/nccl/lib), and see that LD_LIBRARY_PATH names its folder",
            error.what());
}

std::string NcclLibrary::text_of(ncclResult_t result, ncclComm_t communicator) const {
  std::string text = error_string_(result);
  if (const char* const last = last_error_(communicator); last != nullptr && *last != '\0') {
    text += fmt::format(" ({})", last);
  }
  return text;
}

}  // namespace ddl::device
