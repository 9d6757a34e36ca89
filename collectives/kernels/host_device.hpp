#pragma once

// Kernel bodies are in headers that two compilers read: nvcc for devices, and the host's for tests, which run
// a kernel's blocks and threads as host threads.

#if defined(__CUDACC__)
#define DDL_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define DDL_HOST_DEVICE inline
#endif

#if defined(__CUDA_ARCH__)
#define DDL_UNROLL _Pragma("unroll")
#define DDL_NO_UNROLL _Pragma("unroll 1")
#else
#define DDL_UNROLL
#define DDL_NO_UNROLL
#endif
