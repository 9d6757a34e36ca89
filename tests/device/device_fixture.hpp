#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "support/nvidia_driver.hpp"

namespace ddl::test {

/// Skips the test, with the reason, if there is no device; fails if there is one that cannot be used.
class Device : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    const cudaError_t result = cudaGetDeviceCount(&count);
    if (result == cudaSuccess && count > 0) return;
    const char* const why = result == cudaSuccess ? "none is visible" : cudaGetErrorString(result);
    if (has_nvidia_driver()) FAIL() << "there is a driver, but no CUDA device can be used: " << why;
    GTEST_SKIP() << "no CUDA device: " << why;
  }
};

class Stream {
 public:
  Stream() { EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { cudaStreamDestroy(stream_); }
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace ddl::test
