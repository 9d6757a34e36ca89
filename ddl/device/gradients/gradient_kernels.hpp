#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "ddl/gradients/gradient_pass.hpp"

namespace ddl::gradient_pass {

/// Blocks of the kernel that unpacks: so many sums of squares.
inline constexpr std::size_t unpacking_blocks = 512;

// What GradientQueue says, on a stream. Each throws `internal` if it cannot be launched.
void launch_set(double* to, double value, cudaStream_t stream);
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

/// Loads all of them: one that is loaded when it is first needed may wait for kernels that wait for it.
cudaError_t load_gradient_kernels();

}  // namespace ddl::gradient_pass
