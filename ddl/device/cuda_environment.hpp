#pragma once

namespace ddl::device {

/// CUDA_DEVICE_MAX_CONNECTIONS: queues of a device for the work of its streams. The most that there are; 8
/// unless it is set.
inline constexpr int most_connections = 32;
/// CUDA_MODULE_LOADING: kernels are loaded when CUDA starts, and not when they are first launched, which
/// waits for kernels that run.
inline constexpr const char* eager = "EAGER";

/// Whether both are set so.
bool has_cuda_environment() noexcept;

}  // namespace ddl::device
