// The library within the limits of real devices: shared and full queues, blocks that do not fit, limited
// pitches, calls that must not be made while kernels wait.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ddl/ddl.hpp"
#include "ddl/device.hpp"
#include "device/device_cases.hpp"
#include "device/device_fixture.hpp"
#include "device/emulated/emulated_fixture.hpp"
#include "support/job_options.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown_error.hpp"

namespace ddl {
namespace {

using test::all_reduce;
using test::count;
using test::error_of;
using test::expect_parts;
using test::Stream;
using test::TemporaryDirectory;
using test::Values;
using test::with_deadline;

class EmulatedLimits : public test::EmulatedMachine {};

/// What set_cuda_environment prevents: in a single queue a rank's second call is in front of another rank's
/// first, and both wait until the deadline.
TEST_F(EmulatedLimits, RanksThatShareADevicesQueueWaitForEachOtherUntilTheDeadline) {
  for (const int connections : {1, 32}) {
    emulated_cuda::machine().connections = connections;
    emulated_cuda::restore_devices();
    const auto job = [&] {
      run_in_process(
          2,
          [](Context& context) {
            const Stream stream;
            DeviceCommunicator device(context, {.path = DevicePathChoice::exchange});
            const Values values;
            context.communicator().barrier();
            if (context.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
            for (int call = 0; call < 2; ++call) all_reduce(device, values, stream);
            device.wait(stream);
            context.communicator().barrier();
          },
          with_deadline(std::chrono::seconds(connections == 1 ? 1 : 15)));
    };
    if (connections == 1) {
      EXPECT_EQ(error_of(job).code(), ErrorCode::timeout);
    } else {
      job();
    }
  }
}

/// A rank that is ahead of another would fill the launch queue and block the other's calls.
TEST_F(EmulatedLimits, ARankThatIsFarAheadLeavesRoomForTheOthersCalls) {
  constexpr int calls = 300;
  emulated_cuda::machine().launches = 256;
  run_in_process(2, [](Context& context) {
    const Stream stream;
    DeviceCommunicator device(context, {.path = DevicePathChoice::exchange});
    const Values values;
    context.communicator().barrier();
    if (context.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    for (int call = 0; call < calls; ++call) all_reduce(device, values, stream);
    device.wait(stream);
    context.communicator().barrier();
  });
}

/// With a full launch queue, so that the call does not return, expects the error of the deadline.
void expect_the_deadline_with_a_full_launch_queue(DevicePathChoice path, const std::string& timeline = "") {
  emulated_cuda::machine().devices = 2;
  emulated_cuda::machine().launches = 16;
  std::atomic<int> told = 0;
  InProcessOptions options = with_deadline(std::chrono::seconds(2));
  options.context.timeline = timeline;
  error_of([&] {
    run_in_process(
        2,
        [&](Context& context) {
          EXPECT_EQ(cudaSetDevice(context.rank()), cudaSuccess);
          const Stream stream;
          const Values values;
          DeviceCommunicator device(context, {.path = path});
          context.communicator().barrier();
          if (context.rank() == 1) {
            while (told == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            throw Error(ErrorCode::internal, "this rank has not come");
          }
          const Error own = error_of([&] {
            for (int call = 0; call < 60; ++call) all_reduce(device, values, stream);
            device.wait(stream);
          });
          EXPECT_EQ(own.code(), ErrorCode::timeout) << own.what();
          expect_parts(own.what(), {"all_reduce #1 on devices (sum of 1000 f32"});
          ++told;
          throw own;
        },
        options);
  });
  EXPECT_EQ(told, 1);
}

TEST_F(EmulatedLimits, TheDeadlineComesWhileALaunchOfTheExchangeBlocks) {
  expect_the_deadline_with_a_full_launch_queue(DevicePathChoice::exchange);
}
TEST_F(EmulatedLimits, TheDeadlineComesWhileALaunchOfNcclBlocks) {
  expect_the_deadline_with_a_full_launch_queue(DevicePathChoice::nccl);
}

/// The same with a timeline, whose events the caller records and another thread reads.
TEST_F(EmulatedLimits, TheDeadlineComesWhileAnEventOfTheTimelineBlocks) {
  const TemporaryDirectory directory;
  expect_the_deadline_with_a_full_launch_queue(DevicePathChoice::exchange,
                                               directory.file("emulated_limits_timeline.json"));
}

/// On some path, the library would make a call that waits for the device while kernels of one rank wait for
/// another's.
TEST_F(EmulatedLimits, NothingIsMadeWhileKernelsWait) {
  emulated_cuda::machine().devices = 2;
  std::vector<DevicePathChoice> paths = {DevicePathChoice::exchange, DevicePathChoice::nccl};
#ifdef DDL_HAVE_UCX
  paths.push_back(DevicePathChoice::ucx);
#endif
  for (const bool is_timed : {false, true}) {
    for (const DevicePathChoice path : paths) {
      const TemporaryDirectory directory;
      const std::string file = directory.file("emulated_limits_events.json");
      InProcessOptions options = with_deadline(std::chrono::seconds(15));
      if (is_timed) options.context.timeline = file;
      run_in_process(
          2,
          [&](Context& context) {
            EXPECT_EQ(cudaSetDevice(context.rank()), cudaSuccess);
            const Stream stream;
            const Values values;
            DeviceCommunicator device(context, {.path = path});
            context.communicator().barrier();
            emulated_cuda::machine().creation_waits = true;
            context.communicator().barrier();
            if (context.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
            for (int call = 0; call < 50; ++call) {
              all_reduce(device, values, stream);
              // Lets the other rank continue only now; a call that waits for it would wait forever.
              if (context.rank() == 0 && call == 20) context.communicator().barrier();
              if (context.rank() == 1 && call == 0) context.communicator().barrier();
            }
            device.wait(stream);
            context.communicator().barrier();
          },
          options);
    }
  }
}

/// Waiting kernels of one communicator would keep out those of the other for which they wait.
TEST_F(EmulatedLimits, CommunicatorsOfAProcessFitOnTheirDeviceTogether) {
  emulated_cuda::machine().multiprocessors = 6;
  emulated_cuda::machine().blocks_per_multiprocessor = 2;
  run_in_process(2, [](Context& context) {
    const Stream stream;
    const Values values;
    auto first =
        std::make_unique<DeviceCommunicator>(context, DeviceOptions{.path = DevicePathChoice::exchange});
    EXPECT_EQ(first->blocks(), 3);
    const Error error =
        error_of([&] { DeviceCommunicator second(context, {.path = DevicePathChoice::exchange}); });
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    expect_parts(error.what(), {"CUDA device 0 has room for 6 blocks", "have taken 6", "2 ranks"});
    context.communicator().barrier();  // freeing the second one's memory waits for the device
    all_reduce(*first, values, stream);
    first->wait(stream);
    context.communicator().barrier();
    first.reset();
    DeviceCommunicator third(context, {.path = DevicePathChoice::exchange});
    EXPECT_EQ(third.blocks(), 3) << "what has ended takes nothing";
  });
  emulated_cuda::machine().multiprocessors = 130;
  run_in_process(2, [](Context& context) {
    const Stream stream;
    DeviceCommunicator first(context, {.path = DevicePathChoice::exchange});
    DeviceCommunicator second(context, {.path = DevicePathChoice::exchange});
    EXPECT_EQ(first.blocks(), 64);
    EXPECT_EQ(second.blocks(), 1) << "of 130, 128 are taken";
  });
}

/// The queries of a thread of the library would invalidate the program's capture.
TEST_F(EmulatedLimits, ACaptureOfTheProgramsOwnIsLeftAlone) {
  emulated_cuda::machine().devices = 2;
  std::vector<DevicePathChoice> paths = {DevicePathChoice::exchange, DevicePathChoice::nccl};
#ifdef DDL_HAVE_UCX
  paths.push_back(DevicePathChoice::ucx);
#endif
  const TemporaryDirectory directory;
  const std::string file = directory.file("emulated_limits_capture.json");
  for (const DevicePathChoice path : paths) {
    InProcessOptions options;
    options.context.timeline = file;
    run_in_process(
        2,
        [&](Context& context) {
          EXPECT_EQ(cudaSetDevice(context.rank()), cudaSuccess);
          const Stream stream;
          const Stream captured;
          const Values values;
          DeviceCommunicator device(context, {.path = path});
          context.communicator().barrier();
          if (context.rank() == 0) {
            all_reduce(device, values, stream);  // pending until the other rank arrives
            cudaGraph_t graph = nullptr;
            EXPECT_EQ(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal), cudaSuccess);
            std::this_thread::sleep_for(std::chrono::milliseconds(200));
            EXPECT_EQ(cudaStreamEndCapture(captured, &graph), cudaSuccess);
            cudaGraphDestroy(graph);
          }
          context.communicator().barrier();
          if (context.rank() == 1) all_reduce(device, values, stream);
          device.wait(stream);
          context.communicator().barrier();
        },
        options);
  }
}

#ifdef DDL_HAVE_UCX
/// Copies with a pitch that CUDA refuses would fail. Only UCX's threads copy such pieces.
TEST_F(EmulatedLimits, PitchesThatCudaRefusesAreCopiedInPieces) {
  emulated_cuda::machine().pitch = 4096;
  for (const std::size_t elements : {1000, 1024, 1025, 50'000}) {
    test::run_cases(
        3, {{.collective = topology::Collective::reduce_scatter, .count = elements, .in_any_order = true}},
        {.path = DevicePathChoice::ucx});
  }
}
#endif

TEST_F(EmulatedLimits, RanksThatAreThreadsOfOneDeviceAreToldOfItsQueues) {
  const auto output_of = [](const char* connections, const char* loading) {
    connections == nullptr ? unsetenv("CUDA_DEVICE_MAX_CONNECTIONS")
                           : setenv("CUDA_DEVICE_MAX_CONNECTIONS", connections, 1);
    loading == nullptr ? unsetenv("CUDA_MODULE_LOADING") : setenv("CUDA_MODULE_LOADING", loading, 1);
    testing::internal::CaptureStderr();
    run_in_process(2, [](Context& context) {
      DeviceCommunicator device(context, {.path = DevicePathChoice::exchange});
    });
    return testing::internal::GetCapturedStderr();
  };
  const std::string told = output_of(nullptr, nullptr);
  expect_parts(told, {"2 ranks of this process share CUDA device 0", "CUDA_DEVICE_MAX_CONNECTIONS=32",
                      "CUDA_MODULE_LOADING=EAGER", "ddl::set_cuda_environment()"});
  EXPECT_EQ(told.find("expected CUDA_DEVICE"), told.rfind("expected CUDA_DEVICE")) << "once: " << told;
  EXPECT_NE(output_of("8", "EAGER").find("CUDA_DEVICE_MAX_CONNECTIONS"), std::string::npos);
  EXPECT_NE(output_of("32", nullptr).find("CUDA_MODULE_LOADING"), std::string::npos);
  EXPECT_EQ(output_of("32", "EAGER").find("CUDA_DEVICE_MAX_CONNECTIONS"), std::string::npos);
}

}  // namespace
}  // namespace ddl
