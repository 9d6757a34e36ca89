// Reductions of floats on devices in reproducible contexts have the host's bits on every path. Ranks are
// threads, on all devices.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "ddl/ddl.hpp"
#include "ddl/device.hpp"
#include "ddl/topology/schedule.hpp"
#include "device/device_fixture.hpp"
#include "device/hard_floats.hpp"
#include "support/thrown_error.hpp"

namespace ddl {
namespace {

using DeviceReproducible = test::Device;
using test::Stream;
using topology::Collective;

constexpr DataType floats[] = {DataType::f32, DataType::f64, DataType::f16, DataType::bf16};
constexpr ReduceOp ops[] = {ReduceOp::sum, ReduceOp::avg, ReduceOp::min, ReduceOp::max, ReduceOp::prod};
constexpr Collective reductions[] = {Collective::all_reduce, Collective::reduce_scatter, Collective::reduce};

struct Case {
  Collective collective;
  DataType type;
  ReduceOp op;
  std::size_t count;
  bool in_place;
};

std::vector<Case> cases_of(std::initializer_list<std::size_t> counts) {
  std::vector<Case> cases;
  for (const Collective collective : reductions) {
    for (const DataType type : floats) {
      for (const ReduceOp op : ops) {
        bool in_place = false;
        for (const std::size_t count : counts) {
          cases.push_back({collective, type, op, count, in_place});
          in_place = !in_place;
        }
      }
    }
  }
  return cases;
}

/// A rank with memory on its device and on the host.
class Rank {
 public:
  Rank(Context& context, const DeviceOptions& options, const std::vector<Case>& cases)
      : context_(context), device_(context, options) {
    std::size_t most = 1;
    for (const Case& c : cases) most = std::max(most, bytes_of(c));
    for (std::byte*& memory : memory_) {
      void* allocated = nullptr;
      EXPECT_EQ(cudaMalloc(&allocated, most), cudaSuccess);
      memory = static_cast<std::byte*>(allocated);
    }
    context.communicator().barrier();
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  ~Rank() {
    device_.release(stream_);
    context_.communicator().barrier();
    for (std::byte* memory : memory_) cudaFree(memory);
  }

  void check(const Case& c) {
    const std::size_t element = size_of(c.type);
    const std::size_t results = c.count * element;
    auto input = hard_floats(c.type, bytes_of(c) / element, context_.rank(), context_.size());
    upload(memory_[0], input);
    std::size_t at = 0;
    if (c.in_place && c.collective == Collective::reduce_scatter)
      at = static_cast<std::size_t>(context_.rank()) * results;
    std::byte* const output = memory_[c.in_place ? 0 : 1] + at;
    std::vector<std::byte> expected(results, std::byte{0x5a});
    if (c.in_place) std::copy_n(input.begin() + static_cast<std::ptrdiff_t>(at), results, expected.begin());
    upload(output, expected);
    call(device_, c, memory_[0], output, stream_);
    device_.wait(stream_);
    std::vector<std::byte> found(results);
    EXPECT_EQ(cudaMemcpy(found.data(), output, results, cudaMemcpyDeviceToHost), cudaSuccess);
    call(context_.communicator(), c, input.data(), expected.data());
    if (found == expected) return;
    const auto wrong = static_cast<std::size_t>(std::ranges::mismatch(found, expected).in1 - found.begin());
    ADD_FAILURE() << topology::to_string(c.collective) << ' ' << to_string(c.type) << ' ' << to_string(c.op)
                  << " count " << c.count << (c.in_place ? " in place" : "") << ", rank " << context_.rank()
                  << " of " << context_.size() << ", element " << wrong / element;
  }

 private:
  [[nodiscard]] std::size_t bytes_of(const Case& c) const {
    const auto pieces =
        c.collective == Collective::reduce_scatter ? static_cast<std::size_t>(context_.size()) : 1;
    return pieces * c.count * size_of(c.type);
  }

  void upload(std::byte* to, const std::vector<std::byte>& bytes) {
    EXPECT_EQ(cudaMemcpyAsync(to, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, stream_), cudaSuccess);
  }

  /// Calls the case's collective on the device or, without a stream, on the host.
  template <typename Communicator, typename... Streams>
  static void call(Communicator& all, const Case& c, const std::byte* input, std::byte* output,
                   Streams&... stream) {
    if (c.collective == Collective::all_reduce) {
      all.all_reduce(input, output, c.count, c.type, c.op, stream...);
    } else if (c.collective == Collective::reduce_scatter) {
      all.reduce_scatter(input, output, c.count, c.type, c.op, stream...);
    } else {
      all.reduce(input, output, c.count, c.type, c.op, all.size() - 1, stream...);
    }
  }

  Context& context_;
  DeviceCommunicator device_;
  Stream stream_;
  std::byte* memory_[2];
};

InProcessOptions reproducible() {
  InProcessOptions options;
  options.context.reproducible = true;
  return options;
}

void select_device(const Context& context) {
  int devices = 1;
  EXPECT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
  EXPECT_EQ(cudaSetDevice(context.rank() % devices), cudaSuccess);
}

void run_cases(int ranks, const std::vector<Case>& cases, const DeviceOptions& device,
               const InProcessOptions& options = reproducible()) {
  run_in_process(
      ranks,
      [&](Context& context) {
        select_device(context);
        DeviceOptions own = device;
        if (context.hosts() > 1) own.device = context.rank();  // emulated hosts share the devices
        Rank rank(context, own, cases);
        for (const Case& c : cases) rank.check(c);
      },
      options);
}

/// Skips the test if NCCL has no device for each rank.
class DeviceReproducibleNccl : public DeviceReproducible {
 protected:
  void SetUp() override {
    DeviceReproducible::SetUp();
    if (IsSkipped()) return;
    EXPECT_EQ(cudaGetDeviceCount(&devices_), cudaSuccess);
    if (devices_ < 2) GTEST_SKIP() << "one CUDA device alone: NCCL needs one for each of two ranks or more";
  }
  [[nodiscard]] int ranks() const { return devices_ < 4 ? 2 : 4; }

 private:
  int devices_ = 0;
};

constexpr std::size_t small_staging = std::size_t{64} << 10;  // calls need many parts

TEST_F(DeviceReproducible, TheExchangeHasTheHostsBits) {
  for (const int ranks : {1, 2, 3}) {
    run_cases(ranks, cases_of({1, 33, 1000, 5003}), {.path = DevicePathChoice::exchange});
  }
}

TEST_F(DeviceReproducible, LargeCallsHaveTheHostsBitsInHoweverManyParts) {
  std::vector<Case> cases;
  for (const DataType type : floats) {  // large enough for each rank to round a share
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::min}) {
      cases.push_back({Collective::all_reduce, type, op, 140'003, op == ReduceOp::avg});
    }
  }
  run_cases(3, cases, {.path = DevicePathChoice::exchange});
  for (const Case& c : cases_of({20'003})) cases.push_back(c);
  run_cases(3, cases, {.staging_bytes = small_staging, .path = DevicePathChoice::exchange});
}

TEST_F(DeviceReproducibleNccl, HasTheHostsBits) {
  run_cases(2, cases_of({1, 1000, 5003}), {.path = DevicePathChoice::nccl});
  run_cases(2, cases_of({140'003}), {.staging_bytes = small_staging, .path = DevicePathChoice::nccl});
}

TEST_F(DeviceReproducibleNccl, ByDimensionHasTheHostsBits) {
  InProcessOptions options = reproducible();
  for (int rank = 0; rank < ranks(); ++rank) options.hosts.push_back(rank < ranks() / 2 ? "a" : "b");
  options.context.mode = topology::Mode::nccl_per_dimension;
  run_cases(ranks(), cases_of({1, 1000, 70'001}), {.path = DevicePathChoice::nccl}, options);
}

TEST_F(DeviceReproducibleNccl, TogetherWithTheExchangeHasTheHostsBits) { run_cases(2, cases_of({1000}), {}); }

/// Ranks that make different calls would not learn which, because the parts of both calls differ only in the
/// last step.
TEST_F(DeviceReproducible, RanksThatCallOtherThingsLearnWhatTheyCalled) {
  const Error error = test::error_of([] {
    run_in_process(
        2,
        [](Context& context) {
          select_device(context);
          const Stream stream;
          DeviceCommunicator device(context, {.path = DevicePathChoice::exchange});
          std::byte* const values = device.allocate(4000).data;
          device.all_reduce(values, values, 1000, DataType::f32, ReduceOp::sum, stream);
          device.all_reduce(values, values, 1000, DataType::f32,
                            context.rank() == 0 ? ReduceOp::sum : ReduceOp::avg, stream);
          device.wait(stream);
        },
        reproducible());
  });
  EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
  const std::string text = error.what();
  EXPECT_NE(text.find("all_reduce #2 on devices ("), std::string::npos) << text;
  EXPECT_NE(text.find("avg of 1000 f32"), std::string::npos) << text;
  EXPECT_NE(text.find("sum of 1000 f32"), std::string::npos) << text;
}

}  // namespace
}  // namespace ddl
