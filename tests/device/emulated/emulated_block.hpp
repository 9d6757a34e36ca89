#pragma once

#include "device/emulated/emulated_cuda.hpp"
#include "device/emulated/emulated_fibers.hpp"
#include "device/host_blocks.hpp"

namespace ddl::collectives::device {

/// Thrown where a kernel waits on a lost device.
struct DeviceLost {};

/// A block with one thread, which does the work of all its threads.
class WholeBlock : public HostMemory {
 public:
  explicit WholeBlock(const emulated_cuda::Spot& spot) : spot_(spot) {}
  [[nodiscard]] int index() const { return static_cast<int>(spot_.block.x); }
  [[nodiscard]] int blocks() const { return static_cast<int>(spot_.grid.x); }
  [[nodiscard]] static int thread() { return 0; }
  [[nodiscard]] static int threads() { return 1; }
  static void sync() {}
  void pause() {
    if (emulated_cuda::is_lost(spot_.device)) throw DeviceLost();
    patience_.pause();
  }

 private:
  emulated_cuda::Spot spot_;
  emulated_cuda::Patience patience_;
};

/// One of all threads of a block, on a fiber.
class FiberBlock : public HostMemory {
 public:
  FiberBlock(const emulated_cuda::Spot& spot, int thread, int threads)
      : index_(static_cast<int>(spot.block.x)),
        blocks_(static_cast<int>(spot.grid.x)),
        thread_(thread),
        threads_(threads) {}
  [[nodiscard]] int index() const { return index_; }
  [[nodiscard]] int blocks() const { return blocks_; }
  [[nodiscard]] int thread() const { return thread_; }
  [[nodiscard]] int threads() const { return threads_; }
  static void sync() { emulated_cuda::sync_fibers(); }
  static void pause() { emulated_cuda::pause_fiber(); }

 private:
  int index_, blocks_, thread_, threads_;
};

}  // namespace ddl::collectives::device
