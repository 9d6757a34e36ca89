// Device work in the job's timeline. Otherwise users could not see whether reductions overlap with backward.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "ddl/ddl.hpp"
#include "ddl/device.hpp"
#include "ddl/gradient_reducer.hpp"
#include "device/device_fixture.hpp"
#include "support/temporary_directory.hpp"
#include "support/trace_check.hpp"

namespace ddl {
namespace {

using DeviceTimeline = test::Device;

double begin_of(const nlohmann::json& event) { return event.at("ts").get<double>(); }
double end_of(const nlohmann::json& event) { return begin_of(event) + event.at("dur").get<double>(); }

TEST_F(DeviceTimeline, HasCollectivesAndWhatTheTrainerNamesOnTheCommonClock) {
  constexpr int ranks = 2;
  constexpr int steps = 3;
  constexpr std::size_t count = 1'000'000;
  const test::TemporaryDirectory directory;
  const std::filesystem::path file = directory.path() / "trace.json";
  InProcessOptions options;
  options.context.timeline = file.string();
  run_in_process(
      ranks,
      [](Context& context) {
        int devices = 0;
        ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
        ASSERT_EQ(cudaSetDevice(context.rank() % devices), cudaSuccess);
        const test::Stream stream;
        DeviceCommunicator device(context,
                                  {.device = context.rank() % devices, .path = DevicePathChoice::exchange});
        auto* const values = reinterpret_cast<float*>(device.allocate(count * sizeof(float)).data);
        GradientReducer reducer(device, {{"weight", {values, count}}},
                                {.gradients = GradientKind::sum, .bucket_bytes = count});
        for (int step = 0; step < steps; ++step) {
          const auto host = context.timeline().scope("step");
          reducer.begin(1);
          {
            const auto scope = device.scope("backward", stream);
            ASSERT_EQ(cudaMemsetAsync(values, 0, count * sizeof(float), stream), cudaSuccess);
          }
          reducer.ready(0, stream);
          reducer.finish(stream);
          EXPECT_TRUE(reducer.result().finite);
        }
        device.release(stream);
      },
      options);
  const test::Trace trace(file.string());
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_TRUE(trace.tracks(rank).contains("device"));
    const auto parts = trace.named("backward", rank);
    const auto in_steps = trace.named("step", rank);
    ASSERT_EQ(parts.size(), steps);
    ASSERT_EQ(in_steps.size(), steps);
    // The device's clock differs from the host's by the time that reading it takes.
    constexpr double slack_us = 1000;
    for (int step = 0; step < steps; ++step) {
      const auto at = static_cast<std::size_t>(step);
      EXPECT_GE(begin_of(parts[at]), begin_of(in_steps[at]) - slack_us);
      EXPECT_LE(end_of(parts[at]), end_of(in_steps[at]) + slack_us);
    }
    std::size_t on_device = 0;
    for (const nlohmann::json& event : trace.named("all_reduce", rank)) {
      // A bucket's event; the host's calls have other sizes.
      if (event.at("args").value("bytes", 0) == static_cast<int>(count)) ++on_device;
    }
    EXPECT_GE(on_device, 4U * steps) << "four buckets a step";
    EXPECT_GE(trace.named("unpack", rank).size(), 4U * steps);
  }
}

}  // namespace
}  // namespace ddl
