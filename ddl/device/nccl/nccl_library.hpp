#pragma once

#include <nccl.h>

#include <string>

#include "topology/discovery/dynamic_library.hpp"

namespace ddl::device {

/// NCCL, found when it is first needed: programs run where it is not installed.
class NcclLibrary {
 public:
  /// Throws `unsupported`, saying what was looked for and what to do.
  static const NcclLibrary& get();

  decltype(&::ncclGetUniqueId) get_unique_id;
  decltype(&::ncclCommInitRankConfig) init;
  decltype(&::ncclCommFinalize) finalize;
  decltype(&::ncclCommDestroy) destroy;
  decltype(&::ncclCommAbort) abort;
  /// Ends what is under way and leaves the communicator to its owner. Null before 2.28.
  ncclResult_t (*revoke)(ncclComm_t communicator, int flags);
  decltype(&::ncclCommGetAsyncError) async_error;
  decltype(&::ncclAllReduce) all_reduce;
  decltype(&::ncclReduceScatter) reduce_scatter;
  decltype(&::ncclAllGather) all_gather;
  decltype(&::ncclBroadcast) broadcast;
  decltype(&::ncclReduce) reduce;

  /// What NCCL says of a result, with its last words about a communicator (may be null).
  [[nodiscard]] std::string text_of(ncclResult_t result, ncclComm_t communicator) const;

 private:
  NcclLibrary();

  topology::DynamicLibrary library_;
  decltype(&::ncclGetErrorString) error_string_;
  decltype(&::ncclGetLastError) last_error_;
};

}  // namespace ddl::device
