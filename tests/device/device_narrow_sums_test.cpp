// 16-bit gradients on devices that are summed in 16 bits.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "ddl/ddl.hpp"
#include "ddl/device.hpp"
#include "ddl/hash.hpp"
#include "device/device_fixture.hpp"
#include "device/narrow_steps.hpp"
#include "support/thrown_error.hpp"

namespace ddl {
namespace {

using DeviceNarrowSums = test::Device;
using test::NarrowGradients;
using test::Stream;
using test::with_each_type;

InProcessOptions in_context(bool reproducible) {
  InProcessOptions options;
  options.context.reproducible = reproducible;
  return options;
}

int device_of(const Context& context) {
  int devices = 1;
  EXPECT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
  return context.rank() % devices;
}

double any_value(int rank, std::size_t g, std::size_t e) {
  SplitMix64 random(static_cast<std::uint64_t>(rank) + 7, g * 100'000 + e);
  return (static_cast<double>(random.below(20'001)) - 10'000) / 3000;
}

/// A wrong weight, a lost rank or a sum in the wrong place would train a wrong model; memory or bytes of f32
/// would be no gain.
TEST_F(DeviceNarrowSums, SumsOfSmallIntegersAreExact) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const bool adjacent : {true, false}) {
      for (const GradientKind kind : {GradientKind::sum, GradientKind::mean}) {
        for (const bool reproducible : {false, true}) {
          run_in_process(
              ranks,
              [&](Context& context) {
                DeviceCommunicator device(context, {.device = device_of(context)});
                with_each_type([&]<typename Narrow>(Narrow) {
                  for (const bool sharded : {false, true})
                    test::expect_exact_sums<Narrow>(
                        context, device, adjacent,
                        {.gradients = kind, .bucket_bytes = 10'000, .sharded_update = sharded});
                });
              },
              in_context(reproducible));
        }
      }
    }
  }
}

/// Rounding errors beyond the documented bound, or other bits on other ranks, whose models would drift apart.
TEST_F(DeviceNarrowSums, ErrorsAreWithinTheBoundAndAlikeOnAllRanks) {
  for (const int ranks : {2, 4}) {
    for (const bool leave_sums : {true, false}) {
      std::vector<std::vector<float>> found(static_cast<std::size_t>(ranks));
      run_in_process(ranks, [&](Context& context) {
        DeviceCommunicator device(context, {.device = device_of(context)});
        const Stream stream;
        with_each_type([&]<typename Narrow>(Narrow) {
          NarrowGradients<Narrow> block(device, true);
          GradientReducer reducer(device, block.gradients,
                                  {.gradients = GradientKind::sum,
                                   .bucket_bytes = 10'000,
                                   .leave_sums = leave_sums,
                                   .narrow_sums = true});
          const ReducedStep step =
              block.step(reducer, GradientKind::sum, stream,
                         [&](std::size_t g, std::size_t e) { return any_value(context.rank(), g, e); });
          const double scale = leave_sums ? 1 : 1 / step.weight;
          const double unit = data_type_of<Narrow>() == DataType::f16 ? 0x1p-11 : 0x1p-8;
          for (std::size_t g = 0; g < block.values.size(); ++g) {
            for (std::size_t e = 0; e < block.values[g].size(); ++e) {
              double sum = 0;
              double magnitude = 0;
              for (int rank = 0; rank < ranks; ++rank) {
                const auto value = static_cast<double>(
                    static_cast<float>(Narrow(static_cast<float>((rank + 1) * any_value(rank, g, e)))));
                sum += value;
                magnitude += std::abs(value);
              }
              const auto value = static_cast<float>(block.values[g][e]);
              found[static_cast<std::size_t>(context.rank())].push_back(value);
              const double bound = (ranks - 1 + (leave_sums ? 0 : 1)) * unit * magnitude * scale;
              ASSERT_NEAR(value, sum * scale, 1.01 * bound) << g << " " << e;
            }
          }
        });
        device.release(stream);
      });
      for (const std::vector<float>& of_rank : found) EXPECT_EQ(of_rank, found.front());
    }
  }
}

/// Reproducible training would give other bits on devices than on hosts.
TEST_F(DeviceNarrowSums, ReproducibleSumsHaveTheHostsBits) {
  for (const bool leave_sums : {true, false}) {
    run_in_process(
        3,
        [&](Context& context) {
          DeviceCommunicator device(context, {.device = device_of(context)});
          const Stream stream;
          with_each_type([&]<typename Narrow>(Narrow) {
            NarrowGradients<Narrow> block(device, true);
            GradientReducerOptions options = {.gradients = GradientKind::sum,
                                              .bucket_bytes = 10'000,
                                              .leave_sums = leave_sums,
                                              .narrow_sums = true};
            GradientReducer by_device(device, block.gradients, options);
            std::vector<Narrow> memory(block.host.size());
            std::vector<Gradient> gradients;
            std::size_t at = 0;
            for (const Gradient& gradient : block.gradients) {
              gradients.push_back(
                  {gradient.name, std::span(memory).subspan(at, gradient.values.size()), gradient.row_width});
              at += gradient.values.size();
            }
            options.bucket_bytes = 1000;
            GradientReducer by_host(context, gradients, options);
            const auto mean = [&](std::size_t g, std::size_t e) { return any_value(context.rank(), g, e); };
            const double weight = context.rank() + 1;
            at = 0;
            for (std::size_t g = 0; g < gradients.size(); ++g) {
              for (std::size_t e = 0; e < gradients[g].values.size(); ++e)
                memory[at++] = Narrow(static_cast<float>(mean(g, e) * weight));
            }
            for (std::size_t g = gradients.size(); g-- > 0;) by_host.ready(g);
            const ReducedStep expected = by_host.wait(weight);
            EXPECT_EQ(block.step(by_device, GradientKind::sum, stream, mean).norm, expected.norm);
            for (std::size_t i = 0; i < at; ++i)
              ASSERT_EQ(static_cast<float>(block.host[i]), static_cast<float>(memory[i])) << i;
          });
          device.release(stream);
        },
        in_context(true));
  }
}

/// Some ranks would update their models with gradients that have overflowed, and others would not.
TEST_F(DeviceNarrowSums, AllRanksNoticeWhatIsNotFinite) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  for (const bool leave_sums : {true, false}) {
    run_in_process(2, [&](Context& context) {
      DeviceCommunicator device(context, {.device = device_of(context)});
      const Stream stream;
      NarrowGradients<float16> block(device, true);
      GradientReducer reducer(
          device, block.gradients,
          {.gradients = GradientKind::mean, .leave_sums = leave_sums, .narrow_sums = true});
      const auto is_finite = [&](const auto& mean) {  // of weights 1 and 2
        return block.step(reducer, GradientKind::mean, stream, mean).finite;
      };
      EXPECT_TRUE(is_finite([](std::size_t, std::size_t) { return 20'000.0; }));
      EXPECT_FALSE(
          is_finite([](std::size_t g, std::size_t e) { return g == 3 && e == 7777 ? 30'000.0 : 1.0; }));
      EXPECT_FALSE(is_finite(
          [&](std::size_t g, std::size_t e) { return context.rank() == 1 && g == 1 && e == 256 ? nan : 1; }));
      device.release(stream);
    });
  }
}

/// Small gradients of many micro-batches would be lost beside the sum of those before them.
TEST_F(DeviceNarrowSums, MicroBatchesOfMeansAddUpInF32) {
  run_in_process(1, [](Context& context) {
    DeviceCommunicator device(context);
    const Stream stream;
    NarrowGradients<bfloat16> block(device, true);
    GradientReducer reducer(
        device, block.gradients,
        {.gradients = GradientKind::mean, .leave_sums = true, .micro_batches = true, .narrow_sums = true});
    const auto micro_batch = [&](double value) {
      reducer.begin(1);
      for (bfloat16& element : block.host) element = bfloat16(static_cast<float>(value));
      ASSERT_EQ(cudaMemcpyAsync(block.gradients.front().values.data(), block.host.data(),
                                block.host.size() * sizeof(bfloat16), cudaMemcpyHostToDevice, stream),
                cudaSuccess);
      for (std::size_t g = block.values.size(); g-- > 0;) reducer.ready(g, stream);
      reducer.finish(stream);
    };
    {
      const auto scope = reducer.no_sync();
      micro_batch(2);
      for (int i = 0; i < 3; ++i) micro_batch(0x1p-8);
    }
    const ReducedStep step =
        block.step(reducer, GradientKind::mean, stream, [](std::size_t, std::size_t) { return 0x1p-8; });
    EXPECT_EQ(step.weight, 5);
    EXPECT_EQ(static_cast<float>(block.values[3][100]), 2 + 0x1p-6f);
    device.release(stream);
  });
}

/// An optimiser that is spread over ranks would lose bits of the parameters.
TEST_F(DeviceNarrowSums, AShardedUpdateGathersParametersWithAllTheirBits) {
  for (const int ranks : {2, 3}) {
    run_in_process(ranks, [&](Context& context) {
      DeviceCommunicator device(context, {.device = device_of(context)});
      const Stream stream;
      with_each_type([&]<typename Narrow>(Narrow) {
        for (const bool adjacent : {true, false}) {
          NarrowGradients<Narrow> block(device, adjacent);
          GradientReducer reducer(device, block.gradients,
                                  {.gradients = GradientKind::sum,
                                   .bucket_bytes = 10'000,
                                   .sharded_update = true,
                                   .narrow_sums = true});
          const std::size_t count = block.host.size();
          auto* const memory = reinterpret_cast<float*>(device.allocate(count * sizeof(float)).data);
          std::vector<float> host(count);
          std::vector<std::size_t> places;
          std::vector<Parameter> parameters;
          for (const auto& values : block.values) {
            places.push_back(static_cast<std::size_t>(values.data() - block.host.data()));
            parameters.push_back({"p", Elements(memory + places.back(), values.size())});
          }
          block.step(reducer, GradientKind::sum, stream,
                     [](std::size_t, std::size_t e) { return static_cast<double>(e % 8); });
          for (const GradientPiece& piece : reducer.shards()) {
            for (std::size_t e = piece.first; e < piece.first + piece.count; ++e)
              host[places[piece.gradient] + e] =
                  static_cast<float>(block.values[piece.gradient][e]) + 0x1p-20f;
          }
          ASSERT_EQ(
              cudaMemcpyAsync(memory, host.data(), count * sizeof(float), cudaMemcpyHostToDevice, stream),
              cudaSuccess);
          reducer.gather(parameters, stream);
          ASSERT_EQ(
              cudaMemcpyAsync(host.data(), memory, count * sizeof(float), cudaMemcpyDeviceToHost, stream),
              cudaSuccess);
          device.wait(stream);
          for (std::size_t g = 0; g < block.values.size(); ++g) {
            for (std::size_t e = 0; e < block.values[g].size(); ++e)
              ASSERT_EQ(host[places[g] + e], static_cast<float>(e % 8) + 0x1p-20f) << g << " " << e;
          }
        }
      });
      device.release(stream);
    });
  }
}

/// A wire type would have no effect, or a rank would sum in another type than its peers.
TEST_F(DeviceNarrowSums, WhatDoesNotFitIsRefused) {
  run_in_process(2, [](Context& context) {
    DeviceCommunicator device(context, {.device = device_of(context)});
    const NarrowGradients<bfloat16> block(device, true);
    test::expect_error(
        ErrorCode::invalid_argument, {"'g0' is bf16, which travels as it is", "wire type f16"}, [&] {
          GradientReducer(device, block.gradients,
                          {.gradients = GradientKind::sum, .wire = DataType::f16, .narrow_sums = true});
        });
    test::expect_error(ErrorCode::mismatch, {"option"}, [&] {
      GradientReducer(device, block.gradients,
                      {.gradients = GradientKind::sum, .narrow_sums = context.rank() == 0});
    });
  });
}

}  // namespace
}  // namespace ddl
