#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "collectives/kernels/reduce.hpp"
#include "ddl/ddl.hpp"
#include "ddl/device.hpp"
#include "ddl/topology/schedule.hpp"
#include "device/device_fixture.hpp"
#include "device/test_numbers.hpp"

/// Calls of ranks that are threads, and what must come of them.
namespace ddl::test {

/// Memory of the device, and the host's bytes that it began with.
class OnDevice {
 public:
  explicit OnDevice(const std::vector<std::byte>& bytes) : original(bytes) {
    EXPECT_EQ(cudaMalloc(&data_, std::max<std::size_t>(bytes.size(), 1)), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data_, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), cudaSuccess);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { cudaFree(data_); }

  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_); }
  [[nodiscard]] std::vector<std::byte> bytes() const {
    std::vector<std::byte> found(original.size());
    EXPECT_EQ(cudaMemcpy(found.data(), data_, found.size(), cudaMemcpyDeviceToHost), cudaSuccess);
    return found;
  }

  const std::vector<std::byte> original;

 private:
  void* data_ = nullptr;
};

struct Case {
  topology::Collective collective = topology::Collective::all_reduce;
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  std::size_t count = 0;
  int root = 0;
  bool in_place = false;
  bool in_any_order = false;  ///< Reductions of its numbers are the same in any order.
};

inline std::size_t pieces(const Case& c, int ranks, topology::Collective with_many) {
  return c.collective == with_many ? static_cast<std::size_t>(ranks) : 1;
}

inline std::vector<std::byte> input_of(const Case& c, int rank, int ranks) {
  const std::size_t count = c.count * pieces(c, ranks, topology::Collective::reduce_scatter);
  const auto seed = static_cast<std::uint32_t>(rank) + 1;
  // Of up to 8 ranks, products and sums have 8 bits.
  return c.in_any_order ? small_numbers(c.type, count, seed, c.op == ReduceOp::prod ? 2 : 16)
                        : random_bytes(c.type, count, seed);
}

/// What a rank must have; empty where its output is left alone.
inline std::vector<std::byte> expected(const Case& c, int rank, int ranks) {
  const std::size_t bytes = c.count * size_of(c.type);
  std::vector<std::vector<std::byte>> inputs;
  for (int r = 0; r < ranks; ++r) inputs.push_back(input_of(c, r, ranks));
  if (c.collective == topology::Collective::broadcast) return inputs[static_cast<std::size_t>(c.root)];
  if (c.collective == topology::Collective::reduce && rank != c.root) return {};
  std::vector<std::byte> result;
  if (c.collective == topology::Collective::all_gather) {
    for (const auto& input : inputs) result.insert(result.end(), input.begin(), input.end());
    return result;
  }
  result.resize(bytes);
  std::vector<const std::byte*> sources;
  const std::size_t at =
      c.collective == topology::Collective::reduce_scatter ? static_cast<std::size_t>(rank) * bytes : 0;
  for (const auto& input : inputs) sources.push_back(input.data() + at);
  std::byte* const target = result.data();
  collectives::reduce(c.type, c.op, std::span(&target, 1), sources, c.count,
                      c.op == ReduceOp::avg ? ranks : 1);
  return result;
}

/// Queues the call; returns where its output is.
inline std::byte* call(DeviceCommunicator& device, const Case& c, const OnDevice& first,
                       const OnDevice& second, cudaStream_t stream) {
  const std::size_t piece = static_cast<std::size_t>(device.rank()) * c.count * size_of(c.type);
  const std::byte* input = first.data();
  std::byte* output = c.in_place ? first.data() : second.data();
  if (c.in_place && c.collective == topology::Collective::all_gather) input += piece;
  if (c.in_place && c.collective == topology::Collective::reduce_scatter) output += piece;
  switch (c.collective) {
    case topology::Collective::all_reduce:
      device.all_reduce(input, output, c.count, c.type, c.op, stream);
      break;
    case topology::Collective::reduce_scatter:
      device.reduce_scatter(input, output, c.count, c.type, c.op, stream);
      break;
    case topology::Collective::all_gather:
      device.all_gather(input, output, c.count, c.type, stream);
      break;
    case topology::Collective::broadcast:
      device.broadcast(input, output, c.count, c.type, c.root, stream);
      break;
    case topology::Collective::reduce:
      device.reduce(input, output, c.count, c.type, c.op, c.root, stream);
      break;
    case topology::Collective::barrier:
      device.barrier(stream);
      break;
  }
  return output;
}

inline void run_cases(int ranks, const std::vector<Case>& cases, const DeviceOptions& options,
                      const InProcessOptions& in_process = {}) {
  const auto body = [&](Context& context) {
    // All memory first: a cudaMalloc would wait for kernels that wait.
    std::vector<std::unique_ptr<OnDevice>> first, second;
    const Stream stream;
    DeviceCommunicator device(context, options);
    for (const Case& c : cases) {
      auto input = input_of(c, context.rank(), ranks);
      const std::size_t whole = std::max(
          input.size(), c.count * size_of(c.type) * pieces(c, ranks, topology::Collective::all_gather));
      std::vector<std::byte> bytes(whole);
      const bool is_piece = c.in_place && c.collective == topology::Collective::all_gather;
      std::copy(input.begin(), input.end(),
                bytes.begin() + (is_piece ? context.rank() * static_cast<std::ptrdiff_t>(input.size()) : 0));
      first.push_back(std::make_unique<OnDevice>(bytes));
      second.push_back(std::make_unique<OnDevice>(std::vector<std::byte>(whole, std::byte{0x5a})));
    }
    context.communicator().barrier();
    std::vector<const std::byte*> outputs;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      outputs.push_back(call(device, cases[i], *first[i], *second[i], stream));
    }
    device.wait(stream);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const Case& c = cases[i];
      SCOPED_TRACE(testing::Message()
                   << topology::to_string(c.collective) << ' ' << to_string(c.type) << ' ' << to_string(c.op)
                   << " count " << c.count << (c.in_place ? " in place" : ""));
      auto wanted = expected(c, context.rank(), ranks);
      std::vector<std::byte> found(wanted.size());
      EXPECT_EQ(cudaMemcpy(found.data(), outputs[i], found.size(), cudaMemcpyDeviceToHost), cudaSuccess);
      EXPECT_EQ(found, wanted) << "rank " << context.rank();
      if (wanted.empty() && !c.in_place) {
        EXPECT_EQ(second[i]->bytes(), second[i]->original) << "left alone";
      }
    }
    context.communicator().barrier();
  };
  run_in_process(ranks, body, in_process);
}

inline constexpr DataType types[] = {DataType::u8,  DataType::i32, DataType::i64, DataType::f32,
                                     DataType::f64, DataType::f16, DataType::bf16};
inline constexpr ReduceOp ops[] = {ReduceOp::sum, ReduceOp::avg, ReduceOp::min, ReduceOp::max,
                                   ReduceOp::prod};
inline constexpr topology::Collective all_collectives[] = {
    topology::Collective::all_reduce, topology::Collective::reduce_scatter, topology::Collective::all_gather,
    topology::Collective::broadcast, topology::Collective::reduce};

}  // namespace ddl::test
