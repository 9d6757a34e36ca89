#pragma once

#include <cstddef>

/// The part of CUDA's driver API that discovery uses, declared from its public reference
/// (docs.nvidia.com/cuda/cuda-driver-api): builds need no CUDA header, and no library must be installed.
namespace ddl::topology::cuda_driver {

using Result = int;  // 0: success
using Device = int;

/// CUdevice_attribute.
enum Attribute : int { compute_capability_major = 75, compute_capability_minor = 76 };

/// CUdevice_P2PAttribute.
enum P2pAttribute : int { access_supported = 2, native_atomic_supported = 3 };

/// CUresult.
enum Code : int {
  invalid_value = 1,
  not_initialized = 3,
  stub_library = 34,
  no_device = 100,
  invalid_device = 101
};

using Init = Result(unsigned flags);                         // cuInit
using GetErrorText = Result(Result, const char** text);      // cuGetErrorName, cuGetErrorString
using GetCount = Result(int* count);                         // cuDeviceGetCount
using Get = Result(Device*, int ordinal);                    // cuDeviceGet
using GetText = Result(char* text, int length, Device);      // cuDeviceGetName, cuDeviceGetPCIBusId
using GetAttribute = Result(int* value, Attribute, Device);  // cuDeviceGetAttribute
using GetMemory = Result(std::size_t* bytes, Device);        // cuDeviceTotalMem_v2
using GetP2p = Result(int* value, P2pAttribute, Device from, Device to);  // cuDeviceGetP2PAttribute

}  // namespace ddl::topology::cuda_driver
