#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <ranges>

#include "collectives/device/exchange.hpp"
#include "collectives/device/network_body.hpp"
#include "ddl/data_type.hpp"

/// Kernels of collectives on devices. Launch functions throw `internal` if the launch fails.
namespace ddl::collectives::device {

/// Threads in each block of an exchange.
int exchange_block_threads();

/// Loads kernels or arrays of them, skipping null ones. Loading a kernel at its first launch could make the
/// device wait for kernels that wait for it.
template <typename Kernel, typename... Others>
cudaError_t load_kernels(const Kernel& kernel, const Others&... others) {
  cudaError_t result = cudaSuccess;
  if constexpr (std::ranges::range<Kernel>) {
    for (const auto& each : kernel) {
      if (result == cudaSuccess) result = load_kernels(each);
    }
  } else if (const void* const pointer = reinterpret_cast<const void*>(kernel); pointer != nullptr) {
    cudaFuncAttributes attributes{};
    result = cudaFuncGetAttributes(&attributes, pointer);
  }
  if constexpr (sizeof...(others) > 0) {
    if (result == cudaSuccess) return load_kernels(others...);
  }
  return result;
}

/// Kernels `Of<T, Op>::value`, indexed by ReduceOp: sum, avg, min, max, prod.
template <template <typename, typename> typename Of, typename T>
constexpr std::array by_op = {Of<T, Sum>::value, Of<T, Sum>::value, Of<T, Minimum>::value,
                              Of<T, Maximum>::value, Of<T, Product>::value};
/// Indexed by DataType, then by ReduceOp.
template <template <typename, typename> typename Of>
constexpr std::array by_type_and_op = {
    by_op<Of, std::uint8_t>, by_op<Of, std::int32_t>, by_op<Of, std::int64_t>, by_op<Of, float>,
    by_op<Of, double>,       by_op<Of, float16>,      by_op<Of, bfloat16>};
static_assert(static_cast<int>(DataType::u8) == 0 && static_cast<int>(DataType::bf16) == 6);

/// Launches a rank's part of a collective: `exchange_ranges`, or `exchange_all` if `whole`. `blocks` must be
/// the same on all ranks.
void launch_exchange(const Exchange& exchange, DataType type, ReduceOp op, bool whole, int blocks,
                     cudaStream_t stream);

/// Loads the exchange kernels (see `load_kernels`), and finds how many blocks of any of them fit on a
/// multiprocessor.
cudaError_t load_exchange_kernels(int& blocks_per_multiprocessor);

// See network_body.hpp.
void launch_combine(const Combination& combination, DataType type, ReduceOp op, cudaStream_t stream);
/// `type`: f16 or bf16. `narrows`: to `type`, else from it.
void launch_wire(const WirePass& pass, DataType type, bool narrows, cudaStream_t stream);
/// `gate`: its device address.
void launch_hold(Gate* gate, std::uint64_t call, std::uint64_t timeout_ns, cudaStream_t stream);
cudaError_t load_network_kernels();

/// What a kernel computes for each element: see ExactForm and `multiply_in_order`.
enum class ExactStep : std::uint8_t {
  scales,
  encode,
  encode_short,  ///< To 32-bit limbs, only for 16-bit floats.
  decode,
  decode_short,
  least_keys,
  greatest_keys,
  decode_least,
  decode_greatest,
  multiply,
};
inline constexpr std::size_t exact_steps = 10;

/// Elements in runs of `length`, which begin `stride` elements apart in the input and `pitch` apart in other
/// arrays. For `multiply` the input has one run per rank, and there is one run of results.
struct ExactPass {
  const std::byte* input = nullptr;
  std::byte* scales = nullptr;
  std::byte* limbs = nullptr;
  std::byte* output = nullptr;
  std::uint64_t runs = 1;
  std::uint64_t length = 0;
  std::uint64_t stride = 0;
  std::uint64_t pitch = 0;
  std::uint64_t ranks = 1;  ///< For `multiply`.
  int bits = 0;             ///< See `encode_element`.
  double divisor = 1;       ///< Divides sums.
};

/// Launches a kernel, which gives the same bits as the host's functions.
void launch_exact_step(ExactStep step, DataType type, const ExactPass& pass, cudaStream_t stream);

cudaError_t load_exact_kernels();

}  // namespace ddl::collectives::device
