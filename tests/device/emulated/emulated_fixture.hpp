// Shared by tests on emulated devices: a machine that is reset after each test, and small calls.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>

#include "ddl/device.hpp"
#include "device/emulated/emulated_cuda.hpp"

namespace ddl::test {

class EmulatedMachine : public testing::Test {
 protected:
  ~EmulatedMachine() override {
    emulated_cuda::machine() = {};
    emulated_cuda::restore_devices();
    cudaSetDevice(0);
    cudaGetLastError();
  }
};

inline constexpr std::size_t count = 1000;

/// `count` floats on the calling thread's device.
struct Values {
  Values() { EXPECT_EQ(cudaMalloc(&data, count * sizeof(float)), cudaSuccess); }
  Values(const Values&) = delete;
  Values& operator=(const Values&) = delete;
  ~Values() { cudaFree(data); }
  void* data = nullptr;
};

inline void all_reduce(DeviceCommunicator& device, const Values& values, cudaStream_t stream,
                       ReduceOp op = ReduceOp::sum) {
  device.all_reduce(values.data, values.data, count, DataType::f32, op, stream);
}

}  // namespace ddl::test
