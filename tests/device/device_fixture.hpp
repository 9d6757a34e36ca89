#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

namespace ddl::test {

/// Skips the test, with the reason, if there is no device.
class Device : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    const cudaError_t result = cudaGetDeviceCount(&count);
    if (result != cudaSuccess || count == 0) {
      GTEST_SKIP() << "no CUDA device: "
                   << (result == cudaSuccess ? "none is visible" : cudaGetErrorString(result));
    }
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
