#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <thread>

#include "device/emulated/emulated_cuda.hpp"

namespace ddl::test {

/// A fixture with a fresh emulated machine.
class Emulated : public testing::Test {
 protected:
  Emulated() { begin(); }
  ~Emulated() override {
    unsetenv("CUDA_MODULE_LOADING");
    emulated_cuda::machine() = {};
    emulated_cuda::restore_devices();
    cudaSetDevice(0);
    cudaGetLastError();
  }

  /// Sets variables that devices read at first use.
  static void begin(int connections = 32, const char* loading = "EAGER") {
    setenv("CUDA_MODULE_LOADING", loading, 1);
    emulated_cuda::machine().connections = connections;
    emulated_cuda::machine().creation_waits = false;
    emulated_cuda::restore_devices();
  }
};

/// Whether the future is not ready after a while. Too short a time can only hide a failure, not cause one.
template <typename Future>
bool is_blocked(const Future& future) {
  return future.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout;
}

/// A gate at which kernels wait for at most `patience`.
class Gate {
 public:
  explicit Gate(std::chrono::milliseconds patience = std::chrono::seconds(20)) : patience_(patience) {}
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  /// Waits, because kernels of a lost device end a moment after the loss is known.
  ~Gate() {
    while (waiting_ > 0) std::this_thread::yield();
  }
  void open() { is_open_ = true; }
  [[nodiscard]] bool has_failed() const { return has_failed_; }
  [[nodiscard]] int waiting() const { return waiting_; }

  void wait(int device) {
    ++waiting_;
    const auto until = std::chrono::steady_clock::now() + patience_;
    for (emulated_cuda::Patience patience; !is_open_ && !emulated_cuda::is_lost(device); patience.pause()) {
      if (std::chrono::steady_clock::now() < until) continue;
      has_failed_ = true;
      break;
    }
    --waiting_;
  }

 private:
  std::chrono::milliseconds patience_;
  std::atomic<bool> is_open_ = false;
  std::atomic<bool> has_failed_ = false;
  std::atomic<int> waiting_ = 0;
};

inline constexpr char test_kernel = 0;

/// A kernel that calls `body` for each of its blocks.
inline cudaError_t launch(cudaStream_t stream, std::function<void(const emulated_cuda::Spot&)> body,
                          unsigned blocks = 1, const void* kernel = &test_kernel) {
  return emulated_cuda::launch(
      {.kernel = kernel, .grid = dim3(blocks), .threads = dim3(32), .stream = stream, .waits = true},
      std::move(body));
}

/// A kernel that waits at a gate.
inline cudaError_t launch_wait(cudaStream_t stream, Gate& gate, unsigned blocks = 1) {
  return launch(
      stream, [&gate](const emulated_cuda::Spot& spot) { gate.wait(spot.device); }, blocks);
}

/// A kernel that opens a gate.
inline cudaError_t launch_open(cudaStream_t stream, Gate& gate) {
  return launch(stream, [&gate](const emulated_cuda::Spot&) { gate.open(); });
}

}  // namespace ddl::test
