#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "ddl/context.hpp"
#include "ddl/device.hpp"
#include "ddl/topology/schedule.hpp"

namespace ddl::test {

using topology::Collective;

/// Memory of the device, and a copy of its initial content on the host.
class OnDevice {
 public:
  explicit OnDevice(const std::vector<std::byte>& bytes) : original(bytes) {
    EXPECT_EQ(cudaMalloc(&data_, std::max<std::size_t>(bytes.size(), 1)), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data_, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);  // other streams do not wait for the copy
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { cudaFree(data_); }

  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_); }
  [[nodiscard]] std::vector<std::byte> bytes() const {
    std::vector<std::byte> found(original.size());
    EXPECT_EQ(cudaMemcpy(found.data(), data_, found.size(), cudaMemcpyDeviceToHost), cudaSuccess);
    return found;
  }

  const std::vector<std::byte> original;

 private:
  void* data_ = nullptr;
};

/// A collective with random data.
struct Case {
  Collective collective = Collective::all_reduce;
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  std::size_t count = 0;
  int root = 0;
  bool in_place = false;
  bool in_any_order = false;  ///< Whether reductions of its numbers do not depend on the order.
};

inline constexpr DataType types[] = {DataType::u8,  DataType::i32, DataType::i64, DataType::f32,
                                     DataType::f64, DataType::f16, DataType::bf16};
inline constexpr ReduceOp ops[] = {ReduceOp::sum, ReduceOp::avg, ReduceOp::min, ReduceOp::max,
                                   ReduceOp::prod};
inline constexpr Collective all_collectives[] = {Collective::all_reduce, Collective::reduce_scatter,
                                                 Collective::all_gather, Collective::broadcast,
                                                 Collective::reduce};

/// Ranks that are threads call all cases in turn, without waiting in between; the results must have the bits
/// of a loop over the ranks. Rank r uses device r modulo the number of devices, unless `options` names
/// another.
void run_cases(int ranks, const std::vector<Case>& cases, const DeviceOptions& options,
               const InProcessOptions& in_process = {});

}  // namespace ddl::test
