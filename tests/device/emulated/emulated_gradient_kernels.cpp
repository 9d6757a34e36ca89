// The functions of gradient_kernels.hpp for emulated devices: blocks one after the other, of one thread.

#include "ddl/device/gradients/gradient_kernels.hpp"
#include "device/emulated/emulated_cuda.hpp"

namespace ddl::gradient_pass {
namespace {

constexpr std::uint32_t blocks = 3;

}  // namespace

cudaError_t launch_set(double* to, double value, cudaStream_t stream) {
  return emulated_cuda::launch(stream, [=](int) { *to = value; });
}

cudaError_t launch_add_scaled(float* target, const float* source, std::size_t count, double weight,
                              cudaStream_t stream) {
  return emulated_cuda::launch(stream, [=](int) {
    for (std::uint32_t block = 0; block < blocks; ++block) {
      add_scaled(target, source, count, weight, {block, blocks, 0, 1});
    }
  });
}

cudaError_t launch_pack(const Bucket& bucket, double weight, bool adds, cudaStream_t stream) {
  return emulated_cuda::launch(stream, [=](int) {
    for (std::uint32_t block = 0; block < blocks; ++block) pack(bucket, weight, adds, {block, blocks, 0, 1});
  });
}

cudaError_t launch_unpack(const Bucket& bucket, const double* weight, const Range& own, double* squares,
                          cudaStream_t stream) {
  return emulated_cuda::launch(stream, [=](int) {
    const double factor = weight == nullptr ? 1 : 1 / *weight;
    for (std::uint32_t block = 0; block < unpacking_blocks; ++block) {
      squares[block] = unpack(bucket, factor, own, {block, unpacking_blocks, 0, 1});
    }
  });
}

cudaError_t launch_unpack_exactly(const Bucket& bucket, const double* weight, const Range& own,
                                  ExactSquares* squares, cudaStream_t stream) {
  return emulated_cuda::launch(stream, [=](int) {
    const double factor = weight == nullptr ? 1 : 1 / *weight;
    for (std::uint32_t block = 0; block < unpacking_blocks; ++block) {
      unpack_exactly(bucket, factor, own, {block, unpacking_blocks, 0, 1}, AddInTurn{*squares});
    }
  });
}

cudaError_t launch_carry(ExactSquares* squares, bool has_problem, cudaStream_t stream) {
  return emulated_cuda::launch(stream, [=](int) {
    if (has_problem) ++squares->not_finite;
    carry(*squares);
  });
}

cudaError_t launch_add_up(ExactSquares* squares, double* sum, cudaStream_t stream) {
  return emulated_cuda::launch(stream, [=](int) {
    carry(*squares);
    *sum = value_of(*squares);
  });
}

cudaError_t launch_add_up(const double* values, std::size_t count, double* sum, cudaStream_t stream) {
  return emulated_cuda::launch(stream, [=](int) {
    double all = 0;
    for (std::size_t i = 0; i < count; ++i) all += values[i];
    *sum = all;
  });
}

cudaError_t launch_conclude(const double* weight, const double* squares, bool leave_sums, Outcome* outcome,
                            cudaStream_t stream) {
  return emulated_cuda::launch(stream, [=](int) { *outcome = outcome_of(*weight, *squares, leave_sums); });
}

cudaError_t load_gradient_kernels() { return cudaDeviceSynchronize(); }

}  // namespace ddl::gradient_pass
