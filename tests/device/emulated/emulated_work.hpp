#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "device/emulated/emulated_cuda.hpp"

/// What streams queue and graphs hold.
namespace emulated_cuda {

struct Graph;

/// An event's record, or the wait for one: nothing is to be done when it is its turn.
struct Mark {};

/// A copy, which takes no room of kernels.
struct Copy {
  std::function<void()> run;
};

struct HostCall {
  cudaHostFn_t function;
  void* data;
};

/// As cuStreamWriteValue64.
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
    Work work;
    std::vector<std::size_t> after;  ///< Earlier nodes.
  };
  std::vector<Node> nodes;
};

}  // namespace emulated_cuda
