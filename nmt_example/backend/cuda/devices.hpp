#pragma once

#include <string>

#include "nmt_example/backend/backend.hpp"

namespace nmt::cuda {

struct Device {
  std::string name;
  ddl::DataType narrow_type;
};

/// Makes `device` the calling thread's CUDA device. Throws `unsupported`, with what to do, if the device does
/// not exist, cannot run this program's kernels, or has no products of the precision.
Device select_device(int device, const CudaPrecision& precision);

}  // namespace nmt::cuda
