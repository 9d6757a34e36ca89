#pragma once

#include <cuda_runtime_api.h>

#include "collectives/device/network_body.hpp"
#include "ddl/data_type.hpp"

/// Kernels of network_body.hpp.
namespace ddl::collectives::device {

cudaError_t launch_combine(const Combination& combination, DataType type, ReduceOp op, cudaStream_t stream);
/// `gate` as the device sees it.
cudaError_t launch_hold(Gate* gate, std::uint64_t call, std::uint64_t timeout_ns, cudaStream_t stream);
/// See load_exchange_kernels.
cudaError_t load_network_kernels();

}  // namespace ddl::collectives::device
