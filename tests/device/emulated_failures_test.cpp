// Situations that a working machine cannot produce, on emulated devices: devices that are lost, shared, too
// small, different from each other or out of reach.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "ddl/ddl.hpp"
#include "ddl/device.hpp"
#include "device/device_fixture.hpp"
#include "device/emulated/emulated_fixture.hpp"
#include "support/job_options.hpp"
#include "support/thrown_error.hpp"

namespace ddl {
namespace {

using test::all_reduce;
using test::count;
using test::error_of;
using test::expect_parts;
using test::Stream;
using test::Values;
using test::with_deadline;

class EmulatedDevices : public test::EmulatedMachine {};

/// To be called before streams and memory are made.
void select_device(const Context& context) {
  EXPECT_EQ(cudaSetDevice(context.rank() % emulated_cuda::machine().devices), cudaSuccess);
}

TEST_F(EmulatedDevices, NoDriverAndAnOldOneAreTold) {
  emulated_cuda::machine().driver = 0;
  const auto start = [](Context& context) { DeviceCommunicator device(context); };
  Error error = error_of([&] { run_in_process(2, start); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  expect_parts(error.what(), {"NVIDIA's driver is not installed"});
  emulated_cuda::machine().driver = 11040;
  error = error_of([&] { run_in_process(2, start); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  expect_parts(error.what(), {"the driver is for CUDA 11.4", "install a newer driver"});
}

TEST_F(EmulatedDevices, ADeviceThatIsTakenIsTold) {
  emulated_cuda::machine().refused = "cudaSetDevice";
  const Error error =
      error_of([&] { run_in_process(2, [](Context& context) { DeviceCommunicator device(context); }); });
  expect_parts(error.what(), {"cudaSetDevice", "device 0"});
}

TEST_F(EmulatedDevices, MemoryThatIsNotThereIsAnAgreedErrorAndTheRestGoesOn) {
  emulated_cuda::machine().bytes = std::size_t{64} << 20;
  run_in_process(2, [](Context& context) {
    select_device(context);
    const Stream stream;
    DeviceCommunicator device(context);
    const Error error = error_of([&] { device.allocate(std::size_t{1} << 30); });
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    expect_parts(error.what(), {"1073741824 bytes of device memory", "out of memory"});
    const Values values;
    context.communicator().barrier();
    all_reduce(device, values, stream);
    device.wait(stream);
    context.communicator().barrier();
  });
}

TEST_F(EmulatedDevices, RanksThatShareADeviceAreWarnedAndRefusedInStrictMode) {
  run_in_process(2, [](Context& context) {
    const DeviceCommunicator device(context);
    ASSERT_EQ(context.fallbacks().size(), 1U);
    expect_parts(context.fallbacks()[0], {"ranks 0, 1 share CUDA device 0"});
  });
  emulated_cuda::machine().devices = 2;
  run_in_process(2, [](Context& context) {
    const DeviceCommunicator device(context);
    EXPECT_TRUE(context.fallbacks().empty());
    EXPECT_EQ(device.device(), context.rank());
  });
  InProcessOptions strict;
  strict.context.strict = true;
  const Error error = error_of([&] {
    run_in_process(
        3, [](Context& context) { DeviceCommunicator device(context); }, strict);
  });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  expect_parts(error.what(), {"ranks 0, 2 share CUDA device 0", "DDL_STRICT"});
}

TEST_F(EmulatedDevices, UnlikeDevicesAreTold) {
  emulated_cuda::machine().devices = 3;
  emulated_cuda::machine().unlike = 2;
  run_in_process(3, [](Context& context) {
    const DeviceCommunicator device(context);
    ASSERT_EQ(context.fallbacks().size(), 1U);
    expect_parts(context.fallbacks()[0], {"ranks 0, 1: Emulated GPU (9.0", "rank 2: Other GPU (8.0"});
  });
}

TEST_F(EmulatedDevices, PeersOutOfReachAreNamedAndAnotherWayIsTaken) {
  emulated_cuda::machine().devices = 2;
  emulated_cuda::machine().peers = false;
  const Error error = error_of([&] {
    run_in_process(2, [](Context& context) {
      DeviceCommunicator device(context, {.path = DevicePathChoice::exchange});
    });
  });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  expect_parts(error.what(), {"cannot reach device", "peer access is not supported"});
  run_in_process(2, [](Context& context) {
    select_device(context);
    const Values values;
    const Stream stream;
    DeviceCommunicator device(context);
    ASSERT_EQ(context.fallbacks().size(), 1U);
    expect_parts(context.fallbacks()[0], {"by NCCL only", "cannot reach device"});
    all_reduce(device, values, stream);
    device.wait(stream);
  });
}

/// One rank's device is lost while it waits for another rank.
void lose_a_device(DevicePathChoice path) {
  emulated_cuda::machine().devices = 2;
  std::atomic<int> messages = 0;
  const Error first = error_of([&] {
    run_in_process(
        2,
        [&](Context& context) {
          select_device(context);
          const Stream stream;
          DeviceCommunicator device(context, {.path = path});
          const Values values;
          context.communicator().barrier();
          const Error error = error_of([&] {
            if (context.rank() == 1) {
              all_reduce(device, values, stream);
              emulated_cuda::lose_device(1);
            }
            // The other rank may have completed the first call; the second one cannot complete.
            for (int call = 0; call < 2; ++call) {
              device.wait(stream);
              all_reduce(device, values, stream);
            }
            device.wait(stream);
          });
          expect_parts(error.what(), {"cudaErrorLaunchFailure", "CUDA device 1"});
          ++messages;
          throw error;
        },
        with_deadline(std::chrono::seconds(60)));
  });
  EXPECT_EQ(messages, 2) << first.what();
}

TEST_F(EmulatedDevices, ALostDeviceEndsTheExchangeEverywhere) { lose_a_device(DevicePathChoice::exchange); }
TEST_F(EmulatedDevices, ALostDeviceEndsNcclEverywhere) { lose_a_device(DevicePathChoice::nccl); }

#ifdef DDL_HAVE_UCX
TEST_F(EmulatedDevices, ALostDeviceEndsUcxEverywhere) { lose_a_device(DevicePathChoice::ucx); }

InProcessOptions on_two_hosts() {
  InProcessOptions options;
  options.hosts = {"host0", "host1"};
  return options;
}

/// Between hosts, UCX would not be chosen if NCCL refuses ranks that share a device, or the log would not say
/// so.
TEST_F(EmulatedDevices, BetweenHostsUcxIsTakenForWantOfNcclAndSaysSo) {
  const auto start = [](Context& context) {
    const Stream stream;
    const Values values;
    DeviceCommunicator device(context);
    const std::vector<std::string> told = context.fallbacks();
    ASSERT_EQ(told.size(), 2U);
    expect_parts(told[1], {"collectives on devices go by UCX: ", "shares its device"});
    context.communicator().barrier();
    all_reduce(device, values, stream);
    device.wait(stream);
    context.communicator().barrier();
  };
  run_in_process(2, start, on_two_hosts());
}

TEST_F(EmulatedDevices, AUcxThatDoesNotKnowDevicesMemoryIsNotTaken) {
  emulated_cuda::machine().ucx = false;
  for (const DevicePathChoice path : {DevicePathChoice::ucx, DevicePathChoice::automatic}) {
    const Error error = error_of([&] {
      run_in_process(
          2, [&](Context& context) { DeviceCommunicator device(context, {.path = path}); }, on_two_hosts());
    });
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    expect_parts(error.what(), {"UCX does not know the memory of devices", "UCX_TLS"});
    if (path == DevicePathChoice::automatic) {
      expect_parts(error.what(), {"shares its device", "expected processes"});
    }
  }
}
#else
TEST_F(EmulatedDevices, ABuildWithoutUcxSaysSo) {
  const Error error = error_of([] {
    run_in_process(
        2, [](Context& context) { DeviceCommunicator device(context, {.path = DevicePathChoice::ucx}); });
  });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  expect_parts(error.what(), {"DDL_WITH_UCX"});
}
#endif

/// A trainer that waits for its stream by CUDA's functions would hang after another rank has failed.
TEST_F(EmulatedDevices, KernelsThatWaitForAFailedRankEndWithoutThisLibrarysWait) {
  emulated_cuda::machine().devices = 2;
  std::vector<DevicePathChoice> paths = {DevicePathChoice::exchange, DevicePathChoice::nccl};
#ifdef DDL_HAVE_UCX
  paths.push_back(DevicePathChoice::ucx);
#endif
  for (const DevicePathChoice path : paths) {
    error_of([&] {
      run_in_process(
          2,
          [&](Context& context) {
            select_device(context);
            const Stream stream;
            DeviceCommunicator device(context, {.path = path});
            const Values values;
            context.communicator().barrier();
            if (context.rank() == 1) throw Error(ErrorCode::io, "the disk is full");
            all_reduce(device, values, stream);
            EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
            const Error own = error_of([&] { device.check(); });
            expect_parts(own.what(),
                         {"all_reduce #1 on devices", "rank 1", "an exception has left the scope"});
            throw own;
          },
          with_deadline(std::chrono::seconds(60)));
    });
  }
}

const std::vector<std::string> what_was_called = {"all_reduce #2 on devices (sum of 1000 f32",
                                                  "all_reduce #2 on devices (max of 1000 f32",
                                                  "have called something else"};

/// One rank calls a maximum and the others a sum, which NCCL does not notice.
void call_other_things(DeviceCommunicator& device, const Values& values, cudaStream_t stream) {
  all_reduce(device, values, stream);
  all_reduce(device, values, stream, device.rank() == 0 ? ReduceOp::sum : ReduceOp::max);
}

void name_who_called_other_things(const InProcessOptions& options) {
  emulated_cuda::machine().devices = 2;
  std::atomic<int> told = 0;
  const auto body = [&](Context& context) {
    select_device(context);
    const Stream stream;
    const Values values;
    DeviceCommunicator device(context, {.path = DevicePathChoice::nccl});
    context.communicator().barrier();
    const Error own = error_of([&] {
      call_other_things(device, values, stream);
      // The comparison runs beside the calls, whose log keeps the last 256: on a busy machine it may come
      // late.
      for (int call = 0; call < 10'000; ++call) {
        all_reduce(device, values, stream);
        device.wait(stream);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    });
    EXPECT_EQ(own.code(), ErrorCode::mismatch);
    expect_parts(own.what(), what_was_called);
    ++told;
    throw own;
  };
  error_of([&] { run_in_process(2, body, options); });
  EXPECT_EQ(told, 2);
}

TEST_F(EmulatedDevices, RanksThatCallOtherThingsOfNcclAreNamedLater) { name_who_called_other_things({}); }

/// In reproducible contexts, where each call is three calls of NCCL, the differing ranks would not be named.
TEST_F(EmulatedDevices, RanksThatCallOtherThingsOfNcclAreNamedLaterInReproducibleContexts) {
  InProcessOptions options;
  options.context.reproducible = true;
  name_who_called_other_things(options);
}

TEST_F(EmulatedDevices, WhatDifferedInTheLastCallsOfNcclIsToldAtTheEnd) {
  emulated_cuda::machine().devices = 2;
  testing::internal::CaptureStderr();
  const Error error = error_of([] {
    run_in_process(2, [](Context& context) {
      select_device(context);
      const Stream stream;
      const Values values;
      {
        DeviceCommunicator device(context, {.path = DevicePathChoice::nccl});
        context.communicator().barrier();
        call_other_things(device, values, stream);
      }
      context.communicator().barrier();
    });
  });
  expect_parts(testing::internal::GetCapturedStderr(), what_was_called);
  expect_parts(error.what(), {"the job has failed before"});
}

/// A missing rank would not be named on some path, or the report would name calls that time paths during
/// start-up.
TEST_F(EmulatedDevices, ARankThatDoesNotComeIsNamedByWhicheverPath) {
  emulated_cuda::machine().devices = 2;
  for (const bool is_reproducible : {false, true}) {
    for (const DevicePathChoice path : {DevicePathChoice::automatic, DevicePathChoice::nccl}) {
      if (is_reproducible && path == DevicePathChoice::automatic) continue;  // timing the paths takes long
      InProcessOptions options = with_deadline(std::chrono::seconds(2));
      options.context.reproducible = is_reproducible;
      std::atomic<int> told = 0;
      error_of([&] {
        run_in_process(
            2,
            [&](Context& context) {
              select_device(context);
              const Stream stream;
              const Values values;
              DeviceCommunicator device(context, {.path = path});
              context.communicator().barrier();
              all_reduce(device, values, stream);
              device.wait(stream);
              for (int call = 0; call < 2 && context.rank() == 0; ++call) all_reduce(device, values, stream);
              const Error own = error_of([&] {
                device.wait(stream);
                for (;;) device.check();
              });
              if (context.rank() == 0)
                expect_parts(own.what(), {"all_reduce #2 on devices (sum of 1000 f32"});
              ++told;
              throw own;
            },
            options);
      });
      EXPECT_EQ(told, 2);
    }
  }
}

}  // namespace
}  // namespace ddl
