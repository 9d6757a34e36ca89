#pragma once

#include <cuda_runtime_api.h>

#include "collectives/device/exchange.hpp"
#include "ddl/data_type.hpp"

namespace ddl::collectives::device {

/// Of each kernel's blocks.
int exchange_block_threads();

/// Queues a rank's part of a collective: `exchange_ranges`, or `exchange_all` if `whole`.
/// `blocks` is the same on all ranks. Returns what the launch did.
cudaError_t launch_exchange(const Exchange& exchange, DataType type, ReduceOp op, bool whole, int blocks,
                            cudaStream_t stream);

/// Loads all kernels: one that is loaded when it is first needed would have the device wait for kernels that
/// wait for it. How many blocks of any of them fit on a multiprocessor at a time.
cudaError_t load_exchange_kernels(int& blocks_per_multiprocessor);

}  // namespace ddl::collectives::device
