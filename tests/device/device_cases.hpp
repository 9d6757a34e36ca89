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

/// Memory of the device, and the host's bytes that it began with.
class OnDevice {
 public:
  explicit OnDevice(const std::vector<std::byte>& bytes) : original(bytes) {
    EXPECT_EQ(cudaMalloc(&data_, std::max<std::size_t>(bytes.size(), 1)), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data_, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), cudaSuccess);
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

/// A collective, and its numbers, which are random.
struct DeviceCase {
  Collective collective = Collective::all_reduce;
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  std::size_t count = 0;
  int root = 0;
  bool in_place = false;
};

/// Ranks that are threads call all cases one after the other, with nothing in between, and have what a loop
/// over the ranks gives, bit for bit.
void run_cases(int ranks, const std::vector<DeviceCase>& cases,
               DevicePathChoice path = DevicePathChoice::exchange, const InProcessOptions& options = {});

}  // namespace ddl::test
