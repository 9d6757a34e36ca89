#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "ddl/gradients/gradient_pass.hpp"

namespace ddl::gradient_pass {

/// Blocks of the unpacking kernels, and so the number of sums of squares of a bucket.
inline constexpr std::size_t unpacking_blocks = 512;

// Launches the functions of gradient_pass.hpp as kernels on a stream. Each throws `internal` if that fails.
void launch_set(double* to, double value, cudaStream_t stream);
/// Sets `*to` to `weight_of(before, *given)`.
void launch_take_weight(double* to, double before, const double* given, cudaStream_t stream);
void launch_add_scaled(float* target, const void* source, DataType type, std::size_t count, double weight,
                       cudaStream_t stream);
void launch_pack(const Bucket& bucket, double weight, bool adds, cudaStream_t stream);
void launch_unpack(const Bucket& bucket, const double* weight, const Range& own, double* squares,
                   cudaStream_t stream);
void launch_unpack_exactly(const Bucket& bucket, const double* weight, const Range& own,
                           ExactSquares* squares, cudaStream_t stream);
void launch_carry(ExactSquares* squares, bool has_problem, cudaStream_t stream);
void launch_add_up(ExactSquares* squares, double* sum, cudaStream_t stream);
void launch_add_up(const double* values, std::size_t count, double* sum, cudaStream_t stream);
void launch_conclude(const double* weight, const double* squares, bool leave_sums, DeviceOutcome* outcome,
                     cudaStream_t stream);

/// Loads all kernels. Loading one on its first launch may block behind waiting kernels and deadlock.
cudaError_t load_gradient_kernels();

}  // namespace ddl::gradient_pass
