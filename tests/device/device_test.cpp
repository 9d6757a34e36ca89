// Collectives on a device by the library's own exchange: ranks are threads, on as many devices as there are,
// several on one if there are fewer.

#include "ddl/device.hpp"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "collectives/kernels/reduce.hpp"
#include "ddl/ddl.hpp"
#include "ddl/topology/schedule.hpp"
#include "device/device_fixture.hpp"
#include "device/test_numbers.hpp"
#include "thrown_error.hpp"

namespace ddl {
namespace {

using test::Device;
using test::Stream;
using topology::Collective;

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
  Collective collective = Collective::all_reduce;
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  std::size_t count = 0;
  int root = 0;
  bool in_place = false;
};

std::size_t pieces(const Case& c, int ranks, Collective with_many) {
  return c.collective == with_many ? static_cast<std::size_t>(ranks) : 1;
}

std::vector<std::byte> input_of(const Case& c, int rank, int ranks) {
  return random_bytes(c.type, c.count * pieces(c, ranks, Collective::reduce_scatter),
                      static_cast<std::uint32_t>(rank) + 1);
}

/// What a rank must have; empty where its output is left alone.
std::vector<std::byte> expected(const Case& c, int rank, int ranks) {
  const std::size_t bytes = c.count * size_of(c.type);
  std::vector<std::vector<std::byte>> inputs;
  for (int r = 0; r < ranks; ++r) inputs.push_back(input_of(c, r, ranks));
  if (c.collective == Collective::broadcast) return inputs[static_cast<std::size_t>(c.root)];
  if (c.collective == Collective::reduce && rank != c.root) return {};
  std::vector<std::byte> result;
  if (c.collective == Collective::all_gather) {
    for (const auto& input : inputs) result.insert(result.end(), input.begin(), input.end());
    return result;
  }
  result.resize(bytes);
  std::vector<const std::byte*> sources;
  const std::size_t at =
      c.collective == Collective::reduce_scatter ? static_cast<std::size_t>(rank) * bytes : 0;
  for (const auto& input : inputs) sources.push_back(input.data() + at);
  std::byte* const target = result.data();
  collectives::reduce(c.type, c.op, std::span(&target, 1), sources, c.count,
                      c.op == ReduceOp::avg ? ranks : 1);
  return result;
}

/// Queues the call; returns where its output is.
std::byte* call(DeviceCommunicator& device, const Case& c, const OnDevice& first, const OnDevice& second,
                cudaStream_t stream) {
  const std::size_t piece = static_cast<std::size_t>(device.rank()) * c.count * size_of(c.type);
  const std::byte* input = first.data();
  std::byte* output = c.in_place ? first.data() : second.data();
  if (c.in_place && c.collective == Collective::all_gather) input += piece;
  if (c.in_place && c.collective == Collective::reduce_scatter) output += piece;
  switch (c.collective) {
    case Collective::all_reduce:
      device.all_reduce(input, output, c.count, c.type, c.op, stream);
      break;
    case Collective::reduce_scatter:
      device.reduce_scatter(input, output, c.count, c.type, c.op, stream);
      break;
    case Collective::all_gather:
      device.all_gather(input, output, c.count, c.type, stream);
      break;
    case Collective::broadcast:
      device.broadcast(input, output, c.count, c.type, c.root, stream);
      break;
    case Collective::reduce:
      device.reduce(input, output, c.count, c.type, c.op, c.root, stream);
      break;
    case Collective::barrier:
      device.barrier(stream);
      break;
  }
  return output;
}

void run_cases(int ranks, const std::vector<Case>& cases) {
  run_in_process(ranks, [&](Context& context) {
    // All memory first: a cudaMalloc would wait for kernels that wait.
    std::vector<std::unique_ptr<OnDevice>> first, second;
    const Stream stream;
    DeviceCommunicator device(context, {.path = DevicePathChoice::exchange});
    for (const Case& c : cases) {
      auto input = input_of(c, context.rank(), ranks);
      const std::size_t whole =
          std::max(input.size(), c.count * size_of(c.type) * pieces(c, ranks, Collective::all_gather));
      std::vector<std::byte> bytes(whole);
      const bool is_piece = c.in_place && c.collective == Collective::all_gather;
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
  });
}

constexpr DataType types[] = {DataType::u8,  DataType::i32, DataType::i64, DataType::f32,
                              DataType::f64, DataType::f16, DataType::bf16};
constexpr ReduceOp ops[] = {ReduceOp::sum, ReduceOp::avg, ReduceOp::min, ReduceOp::max, ReduceOp::prod};
constexpr Collective collectives_[] = {Collective::all_reduce, Collective::reduce_scatter,
                                       Collective::all_gather, Collective::broadcast, Collective::reduce};

TEST_F(Device, EveryTypeAndOperation) {
  std::vector<Case> cases;
  for (const DataType type : types) {
    for (const ReduceOp op : ops) {
      for (const std::size_t count : {1000, 1 << 18}) {
        cases.push_back({.type = type, .op = op, .count = count});
        cases.push_back({.collective = Collective::reduce_scatter, .type = type, .op = op, .count = count});
      }
    }
  }
  run_cases(3, cases);
}

TEST_F(Device, EveryCollectiveCountAndPlace) {
  for (const int ranks : {1, 2, 4}) {
    std::vector<Case> cases;
    for (const Collective collective : collectives_) {
      for (const std::size_t count : {0, 1, 31, 33, 1009, 65'536, 65'537, (1 << 20) + 1}) {
        for (const bool in_place : {false, true}) {
          cases.push_back(
              {.collective = collective, .count = count, .root = ranks - 1, .in_place = in_place});
        }
      }
      cases.push_back({.collective = collective, .type = DataType::u8, .count = 1'000'003, .root = 0});
      cases.push_back({.collective = collective, .type = DataType::f16, .count = 77'777, .root = 0});
    }
    cases.push_back({.collective = Collective::barrier, .count = 0});
    run_cases(ranks, cases);
  }
}

/// Each call's output is the next one's input, and nothing waits in between.
TEST_F(Device, CallsFollowEachOtherOnAStream) {
  constexpr int calls = 200;
  run_in_process(4, [](Context& context) {
    const std::vector<std::uint64_t> ones(100'000, 1);
    std::vector<std::byte> bytes(ones.size() * sizeof(std::uint64_t));
    std::memcpy(bytes.data(), ones.data(), bytes.size());
    const Stream stream;
    DeviceCommunicator device(context, {.path = DevicePathChoice::exchange});
    const OnDevice values(bytes);
    context.communicator().barrier();
    for (int i = 0; i < calls; ++i) {
      const std::size_t count = i % 3 == 0 ? ones.size() : 1000;
      device.all_reduce(values.data(), values.data(), count, DataType::i64, ReduceOp::max, stream);
      if (i % 10 == 0)
        device.all_reduce(values.data(), values.data(), 10, DataType::i64, ReduceOp::sum, stream);
    }
    device.wait(stream);
    const auto found = values.bytes();
    std::vector<std::uint64_t> result(ones.size());
    std::memcpy(result.data(), found.data(), found.size());
    EXPECT_EQ(result[0], std::uint64_t{1} << (2 * (calls / 10)));
    EXPECT_EQ(result[10], 1U);
    context.communicator().barrier();
  });
}

InProcessOptions with_deadline(std::chrono::milliseconds deadline) {
  InProcessOptions options;
  options.context.deadline = deadline;
  return options;
}

TEST_F(Device, ARankThatDoesNotComeIsNamedAtTheDeadline) {
  std::atomic<int> told = 0;
  const Error error = test::error_of([&] {
    run_in_process(
        3,
        [&](Context& context) {
          const Stream stream;
          DeviceCommunicator device(context, {.path = DevicePathChoice::exchange});
          const OnDevice values(std::vector<std::byte>(4000));
          context.communicator().barrier();
          if (context.rank() == 1) {
            while (told < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            return;
          }
          device.all_reduce(values.data(), values.data(), 1000, DataType::f32, ReduceOp::sum, stream);
          try {
            device.wait(stream);
          } catch (const Error&) {
            ++told;
            throw;
          }
        },
        with_deadline(std::chrono::seconds(2)));
  });
  EXPECT_EQ(error.code(), ErrorCode::timeout) << error.what();
  EXPECT_NE(std::string(error.what()).find("all_reduce #1 on devices (sum of 1000 f32"), std::string::npos)
      << error.what();
}

TEST_F(Device, RanksThatCallOtherThingsLearnWhat) {
  const Error error = test::error_of([&] {
    run_in_process(2, [&](Context& context) {
      const Stream stream;
      DeviceCommunicator device(context, {.path = DevicePathChoice::exchange});
      const OnDevice values(std::vector<std::byte>(4000));
      context.communicator().barrier();
      const std::size_t count = context.rank() == 0 ? 1000 : 999;
      device.all_reduce(values.data(), values.data(), count, DataType::f32, ReduceOp::sum, stream);
      device.wait(stream);
    });
  });
  EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
  EXPECT_NE(std::string(error.what()).find("of 999 f32"), std::string::npos) << error.what();
}

TEST_F(Device, BadArgumentsAreRefused) {
  run_in_process(2, [](Context& context) {
    DeviceCommunicator device(context, {.path = DevicePathChoice::exchange});
    const DeviceMemory memory = device.allocate(4096);
    const auto code_of = [&](auto call) { return test::error_of(call).code(); };
    EXPECT_EQ(
        code_of([&] { device.all_reduce(nullptr, memory.data, 10, DataType::f32, ReduceOp::sum, nullptr); }),
        ErrorCode::invalid_argument);
    EXPECT_EQ(code_of([&] { device.broadcast(memory.data, memory.data, 10, DataType::f32, 2, nullptr); }),
              ErrorCode::invalid_argument);
    EXPECT_EQ(code_of([&] {
                device.all_reduce(memory.data + 1, memory.data, 10, DataType::f32, ReduceOp::sum, nullptr);
              }),
              ErrorCode::invalid_argument);
  });
  const Error error = test::error_of([] {
    run_in_process(2, [](Context& context) { DeviceCommunicator device(context, {.device = 1000}); });
  });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_NE(std::string(error.what()).find("CUDA device 1000 does not exist"), std::string::npos)
      << error.what();
}

}  // namespace
}  // namespace ddl
