#pragma once

#include <barrier>

#include "device/emulated/emulated_cuda.hpp"
#include "device/host_blocks.hpp"

namespace ddl::collectives::device {

/// Thrown where a kernel waits.
struct DeviceLost {};

/// A thread of a block of a kernel on an emulated device.
class EmulatedBlock : public HostBlock {
 public:
  EmulatedBlock(int device, int index, int blocks, int thread, int threads, std::barrier<>& barrier)
      : HostBlock(index, blocks, thread, threads, barrier), device_(device) {}
  void pause() const {
    if (emulated_cuda::is_lost(device_)) throw DeviceLost();
    HostBlock::pause();
  }

 private:
  int device_;
};

}  // namespace ddl::collectives::device
