#include "device/device_plan_jobs.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <numeric>
#include <set>
#include <string>

#include "ddl/ddl.hpp"
#include "device/device_cases.hpp"
#include "device/device_fixture.hpp"
#include "support/temporary_directory.hpp"
#include "support/trace_check.hpp"

namespace ddl::test {
namespace {

using topology::Collective;
using topology::Plan;

constexpr std::size_t count = 50'003;

Plan given_plan(const PlanJob& job) {
  Plan plan;
  plan.decomposition = job.dimensions.size() == 1
                           ? topology::Decomposition({job.hosts * job.ranks_of_host}, {})
                           : topology::Decomposition({job.ranks_of_host}, {job.hosts});
  plan.dimensions = job.dimensions;
  plan.chunks = job.chunks;
  plan.order.resize(static_cast<std::size_t>(job.hosts * job.ranks_of_host));
  std::iota(plan.order.begin(), plan.order.end(), 0);
  plan.order_name = "by host";
  return plan;
}

}  // namespace

void run_plan_job(const PlanJob& job) {
  const TemporaryDirectory directory;
  const std::string file = (directory.path() / "trace.json").string();
  InProcessOptions options;
  options.context.timeline = file;
  options.context.plans = {given_plan(job)};
  const int ranks = job.hosts * job.ranks_of_host;
  for (int rank = 0; rank < ranks; ++rank) {
    options.hosts.push_back(fmt::format("host{}", rank / job.ranks_of_host));
  }
  std::uint64_t printed = 0;
  run_in_process(
      ranks,
      [&](Context& context) {
        int devices = 0;
        ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
        const int own = context.rank() % devices;
        ASSERT_EQ(cudaSetDevice(own), cudaSuccess);
        const Stream stream;
        DeviceCommunicator device(context, {.device = own, .path = job.path});
        std::vector<std::int64_t> host(count);
        for (std::size_t i = 0; i < count; ++i) host[i] = static_cast<std::int64_t>(i) + context.rank();
        std::vector<std::byte> bytes(count * sizeof(std::int64_t));
        std::memcpy(bytes.data(), host.data(), bytes.size());
        const OnDevice input(bytes);
        const OnDevice sums(std::vector<std::byte>(bytes.size()));
        const OnDevice means(std::vector<std::byte>(bytes.size()));
        const Plan plan = device.plan(Collective::all_reduce, bytes.size(), DataType::i64);
        if (context.is_root()) printed = topology::hash(plan);
        ASSERT_EQ(plan.dimensions.size(), job.dimensions.size());
        for (std::size_t d = 0; d < plan.dimensions.size(); ++d) {
          EXPECT_EQ(plan.dimensions[d], job.dimensions[d]) << summary(plan);
        }
        EXPECT_EQ(plan.chunks, job.chunks);
        EXPECT_EQ(plan.predicted_us > 0, ranks > 1) << plan.predicted_us;
        EXPECT_EQ(plan.topology_hash, device.topology().hash());
        context.communicator().barrier();
        device.all_reduce(input.data(), sums.data(), count, DataType::i64, ReduceOp::sum, stream);
        device.all_reduce(input.data(), means.data(), count, DataType::i64, ReduceOp::avg, stream);
        device.all_reduce(input.data(), input.data(), count, DataType::i64, ReduceOp::max, stream);
        device.wait(stream);
        const auto expect = [&](const OnDevice& on_device, const auto& wanted) {
          const std::vector<std::byte> found = on_device.bytes();
          std::size_t wrong = 0;
          for (std::size_t i = 0; i < count; ++i) {
            std::int64_t value = 0;
            std::memcpy(&value, found.data() + i * sizeof value, sizeof value);
            wrong += value == wanted(static_cast<std::int64_t>(i)) ? 0 : 1;
          }
          EXPECT_EQ(wrong, 0U) << "rank " << context.rank() << ", " << summary(plan);
        };
        const std::int64_t n = ranks;
        const std::int64_t all = n * (n - 1) / 2;
        expect(sums, [&](std::int64_t i) { return n * i + all; });
        expect(means, [&](std::int64_t i) { return (n * i + all) / n; });
        expect(input, [&](std::int64_t i) { return i + n - 1; });
        context.communicator().barrier();
        device.release(stream);
      },
      options);
  if (testing::Test::HasFailure() || ranks == 1) return;
  const Trace trace(file);
  for (int rank = 0; rank < ranks; ++rank) {
    std::set<std::uint64_t> executed;
    std::set<int> dimensions;
    for (const char* const collective : {"all_reduce", "reduce_scatter", "all_gather"}) {
      for (std::size_t d = 0; d < job.dimensions.size(); ++d) {
        const std::string name = fmt::format("{} by {}", collective, to_string(job.dimensions[d].carrier));
        for (const auto& event : trace.named(name, rank)) {
          executed.insert(static_cast<std::uint64_t>(event.at("args").at("plan").get<std::int64_t>()));
          dimensions.insert(event.at("args").at("dimension").get<int>());
        }
      }
    }
    EXPECT_EQ(executed, std::set<std::uint64_t>{printed}) << "rank " << rank;
    EXPECT_EQ(dimensions.size(), job.dimensions.size()) << "rank " << rank;
  }
}

}  // namespace ddl::test
