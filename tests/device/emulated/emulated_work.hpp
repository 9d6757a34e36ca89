#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "device/emulated/emulated_cuda.hpp"

/// Work of streams and graphs.
namespace emulated_cuda {

struct Graph;

/// The record of an event or the wait for one: completes without work.
struct Mark {};

/// A copy, which takes no room from kernels.
struct Copy {
  std::function<void()> run;
};

struct HostCall {
  cudaHostFn_t function;
  void* data;
};

/// The work of cuStreamWriteValue64.
struct ValueWrite {
  std::uint64_t* to;
  std::uint64_t value;
};

struct Kernel {
  dim3 grid;
  bool waits;
  std::function<void(const Spot&)> body;
};

struct Replay {
  std::shared_ptr<const Graph> graph;
};

using Work = std::variant<Mark, Copy, HostCall, ValueWrite, Kernel, Replay>;

struct Graph {
  struct Node {
    int device;
    std::uint64_t stream;  ///< Number of the stream that was captured.
    Work work;
    std::vector<std::size_t> after;  ///< Earlier nodes.
  };
  std::vector<Node> nodes;
};

}  // namespace emulated_cuda
