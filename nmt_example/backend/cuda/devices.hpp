#pragma once

#include <string>

namespace nmt::cuda {

/// Makes `device` the calling thread's CUDA device and returns its name. Throws `unsupported`, with what to
/// do, if the device does not exist or cannot run this program's kernels.
std::string select_device(int device);

}  // namespace nmt::cuda
