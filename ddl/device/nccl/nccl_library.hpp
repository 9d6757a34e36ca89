#pragma once

#include <nccl.h>

#include <string>

#include "topology/discovery/dynamic_library.hpp"

namespace ddl::device {

/// NCCL, loaded on first use, so that programs also run where it is not installed.
class NcclLibrary {
 public:
  /// Throws `unsupported` with the name of the missing library or function and how to install NCCL.
  static const NcclLibrary& get();

  decltype(&::ncclGetUniqueId) get_unique_id;
  decltype(&::ncclCommInitRankConfig) init;
  decltype(&::ncclCommFinalize) finalize;
  decltype(&::ncclCommDestroy) destroy;
  decltype(&::ncclCommAbort) abort;
  /// Ends operations in flight without freeing the communicator. Null before NCCL 2.28.
  ncclResult_t (*revoke)(ncclComm_t communicator, int flags);
  decltype(&::ncclCommGetAsyncError) async_error;
  decltype(&::ncclAllReduce) all_reduce;
  decltype(&::ncclReduceScatter) reduce_scatter;
  decltype(&::ncclAllGather) all_gather;
  decltype(&::ncclBroadcast) broadcast;
  decltype(&::ncclReduce) reduce;

  /// NCCL's text for `result`, with the last error of `communicator`, which may be null.
  [[nodiscard]] std::string text_of(ncclResult_t result, ncclComm_t communicator) const;

 private:
  NcclLibrary();

  topology::DynamicLibrary library_;
  decltype(&::ncclGetErrorString) error_string_;
  decltype(&::ncclGetLastError) last_error_;
};

}  // namespace ddl::device
