// Collectives and gradients by NCCL, with a device for each rank: over all ranks at once, and in each
// dimension of emulated hosts.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ddl/ddl.hpp"
#include "ddl/device.hpp"
#include "ddl/gradient_reducer.hpp"
#include "device/device_cases.hpp"
#include "device/device_fixture.hpp"
#include "device/narrow_steps.hpp"

namespace ddl {
namespace {

using test::Case;
using test::Collective;
using test::run_cases;

/// Skips the test if there are too few devices for NCCL.
class DeviceNccl : public test::Device {
 protected:
  void SetUp() override {
    test::Device::SetUp();
    if (IsSkipped()) return;
    EXPECT_EQ(cudaGetDeviceCount(&devices_), cudaSuccess);
    if (devices_ < 2) GTEST_SKIP() << "one CUDA device alone: NCCL needs one for each of two ranks or more";
  }
  [[nodiscard]] int ranks() const { return devices_ < 4 ? 2 : 4; }

 private:
  int devices_ = 0;
};

/// Reductions whose order does not matter.
std::vector<Case> cases(int ranks) {
  std::vector<Case> all;
  for (const Collective collective :
       {Collective::all_reduce, Collective::reduce_scatter, Collective::reduce}) {
    for (const std::size_t count : {1, 1009, 200'003}) {
      for (const bool in_place : {false, true}) {
        all.push_back({collective, DataType::i32, ReduceOp::sum, count, ranks - 1, in_place});
        all.push_back({collective, DataType::i64, ReduceOp::prod, count, 0, in_place});
        all.push_back({collective, DataType::u8, ReduceOp::sum, count, 0, in_place});
      }
    }
    all.push_back({collective, DataType::i32, ReduceOp::avg, 1009, 0});
  }
  for (const DataType type : {DataType::u8, DataType::i64, DataType::f16, DataType::f64}) {
    for (const bool in_place : {false, true}) {
      all.push_back({Collective::all_gather, type, ReduceOp::sum, 50'001, 0, in_place});
      all.push_back({Collective::broadcast, type, ReduceOp::sum, 50'001, ranks - 1, in_place});
    }
  }
  all.push_back({.collective = Collective::barrier});
  all.push_back({.type = DataType::i32, .count = 9'000'001});  // in several chunks
  return all;
}

InProcessOptions on_hosts(int ranks, int hosts, topology::Mode mode) {
  InProcessOptions options;
  options.context.mode = mode;
  for (int rank = 0; rank < ranks; ++rank)
    options.hosts.push_back("host" + std::to_string(rank * hosts / ranks));
  return options;
}

TEST_F(DeviceNccl, AllRanksAtOnce) { run_cases(ranks(), cases(ranks()), {.path = DevicePathChoice::nccl}); }

TEST_F(DeviceNccl, InEachDimension) {
  run_cases(ranks(), cases(ranks()), {.path = DevicePathChoice::nccl},
            on_hosts(ranks(), 2, topology::Mode::nccl_per_dimension));
}

/// On one host, calls on the same stream use the exchange if small and NCCL if large.
TEST_F(DeviceNccl, TogetherWithTheExchange) { run_cases(ranks(), cases(ranks()), {}); }

TEST_F(DeviceNccl, GradientsBetweenHosts) {
  for (const auto& [wire, sharded] : {std::pair(DataType::f32, false),
                                      {DataType::bf16, false},
                                      {DataType::f16, false},
                                      {DataType::f32, true},
                                      {DataType::bf16, true}}) {
    run_in_process(
        ranks(),
        [&, wire = wire, sharded = sharded](Context& context) {
          constexpr std::size_t count = 299'999;
          ASSERT_EQ(cudaSetDevice(context.rank()), cudaSuccess);
          const test::Stream stream;
          DeviceCommunicator device(context, {.device = context.rank()});
          auto* const values = reinterpret_cast<float*>(device.allocate(count * sizeof(float)).data);
          std::vector<float> host(count);
          // Integers which, like their sums, are exact in 16 bits.
          for (std::size_t i = 0; i < count; ++i) {
            host[i] = static_cast<float>((i + static_cast<std::size_t>(context.rank())) % 16);
          }
          const std::span<float> all(values, count);
          GradientReducer reducer(device, {{"a", all.first(count / 3)}, {"b", all.subspan(count / 3)}},
                                  {.gradients = GradientKind::sum,
                                   .bucket_bytes = 100'000,
                                   .wire = wire,
                                   .sharded_update = sharded});
          for (int step = 0; step < 3; ++step) {
            context.communicator().barrier();
            ASSERT_EQ(
                cudaMemcpyAsync(values, host.data(), count * sizeof(float), cudaMemcpyHostToDevice, stream),
                cudaSuccess);
            reducer.begin(1);
            reducer.ready(1, stream);
            reducer.ready(0, stream);
            reducer.finish(stream);
            std::vector<float> found(count);
            const ReducedStep step_result = reducer.result();
            EXPECT_EQ(step_result.weight, context.size());
            EXPECT_EQ(step_result.bytes, count * size_of(step == 0 ? DataType::f32 : wire));
            if (sharded) {
              reducer.gather({{"a", all.first(count / 3)}, {"b", all.subspan(count / 3)}}, stream);
            }
            ASSERT_EQ(
                cudaMemcpyAsync(found.data(), values, count * sizeof(float), cudaMemcpyDeviceToHost, stream),
                cudaSuccess);
            device.wait(stream);
            std::size_t wrong = 0;
            for (std::size_t i = 0; i < count; ++i) {
              double sum = 0;
              for (int rank = 0; rank < context.size(); ++rank) {
                sum += static_cast<double>((i + static_cast<std::size_t>(rank)) % 16);
              }
              wrong += found[i] == static_cast<float>(sum / context.size()) ? 0 : 1;
            }
            EXPECT_EQ(wrong, 0U) << to_string(wire) << (sharded ? ", sharded" : "") << ", step " << step
                                 << ", rank " << context.rank();
          }
          EXPECT_EQ(reducer.residuals().size(), wire == DataType::f32 ? 0U : reducer.buckets());
          device.release(stream);
        },
        on_hosts(ranks(), 2, topology::Mode::explore));
  }
}

/// NCCL would be given f32, or another type's sum, where gradients are summed in 16 bits.
TEST_F(DeviceNccl, NarrowSumsAreExact) {
  for (const auto& [hosts, mode] :
       {std::pair(1, topology::Mode::explore), {2, topology::Mode::nccl_per_dimension}}) {
    run_in_process(
        ranks(),
        [&](Context& context) {
          ASSERT_EQ(cudaSetDevice(context.rank()), cudaSuccess);
          DeviceCommunicator device(context, {.device = context.rank(), .path = DevicePathChoice::nccl});
          test::with_each_type([&]<typename Narrow>(Narrow) {
            for (const bool sharded : {false, true})
              test::expect_exact_sums<Narrow>(
                  context, device, true,
                  {.gradients = GradientKind::sum, .bucket_bytes = 10'000, .sharded_update = sharded});
          });
        },
        on_hosts(ranks(), hosts, mode));
  }
}

/// Small gradients next to large ones would be lost in 16 bits, or a run that resumes from a checkpoint would
/// lose its rounding errors.
TEST_F(DeviceNccl, WhatSixteenBitsCannotHoldComesLater) {
  run_in_process(
      ranks(),
      [&](Context& context) {
        constexpr std::size_t count = 1000;
        ASSERT_EQ(cudaSetDevice(context.rank()), cudaSuccess);
        const test::Stream stream;
        DeviceCommunicator device(context, {.device = context.rank()});
        auto* const values = reinterpret_cast<float*>(device.allocate(count * sizeof(float)).data);
        const GradientReducerOptions options = {
            .gradients = GradientKind::sum, .bucket_bytes = 400, .wire = DataType::bf16};
        GradientReducer first(device, {{"a", {values, count}}}, options);
        constexpr float step_of_bf16 = 1.0f / 128;
        constexpr float gradient = 1 + step_of_bf16 / 8;
        const std::vector<float> own(count, context.rank() == 0 ? gradient : 0);
        const auto step = [&](GradientReducer& reducer) {
          EXPECT_EQ(
              cudaMemcpyAsync(values, own.data(), count * sizeof(float), cudaMemcpyHostToDevice, stream),
              cudaSuccess);
          reducer.ready(0, stream);
          reducer.finish(1, stream);
          EXPECT_TRUE(reducer.result().finite);
          std::vector<float> found(count);
          EXPECT_EQ(
              cudaMemcpyAsync(found.data(), values, count * sizeof(float), cudaMemcpyDeviceToHost, stream),
              cudaSuccess);
          device.wait(stream);
          return found;
        };
        double sum = step(first)[count / 2];  // the first step uses f32
        for (int i = 0; i < 8; ++i) sum += step(first)[count / 2];
        EXPECT_EQ(sum * context.size(), 9 * gradient);
        for (int i = 0; i < 3; ++i) step(first);
        // The rounding errors can be saved and restored to another reducer.
        GradientReducer second(device, {{"a", {values, count}}}, options);
        second.restore(first.state());
        const auto owed = first.residuals();
        const auto places = second.residuals();
        ASSERT_EQ(owed.size(), first.buckets());
        ASSERT_EQ(places.size(), owed.size());
        float most = 0;
        for (std::size_t i = 0; i < owed.size(); ++i) {
          std::vector<float> bucket(owed[i].bytes.size() / sizeof(float));
          ASSERT_EQ(cudaMemcpyAsync(bucket.data(), owed[i].bytes.data(), owed[i].bytes.size(),
                                    cudaMemcpyDeviceToHost, stream),
                    cudaSuccess);
          ASSERT_EQ(cudaMemcpyAsync(places[i].bytes.data(), owed[i].bytes.data(), owed[i].bytes.size(),
                                    cudaMemcpyDeviceToDevice, stream),
                    cudaSuccess);
          device.wait(stream);
          most = std::max(most, *std::ranges::max_element(bucket));
        }
        context.communicator().all_reduce(std::span(&most, 1), ReduceOp::max);
        EXPECT_EQ(most, 3 * step_of_bf16 / 8);
        for (int i = 0; i < 4; ++i) EXPECT_EQ(step(second), step(first)) << i;
      },
      on_hosts(ranks(), 2, topology::Mode::explore));
}

}  // namespace
}  // namespace ddl
