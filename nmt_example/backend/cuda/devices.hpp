#pragma once

#include <string>

namespace nmt::cuda {

/// Makes `device` the calling thread's CUDA device and returns its name. Throws `unsupported` where there
/// is no such device, or where it cannot run this program's kernels; says which and what to do.
std::string select_device(int device);

}  // namespace nmt::cuda
