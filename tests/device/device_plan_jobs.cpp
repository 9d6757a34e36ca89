#include "device/device_plan_jobs.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <set>

#include "ddl/ddl.hpp"
#include "device/device_cases.hpp"
#include "device/device_fixture.hpp"
#include "support/temporary_directory.hpp"
#include "support/trace_check.hpp"

namespace ddl::test {
namespace {

using topology::Collective;
using topology::Plan;

constexpr std::size_t count = 10'007;
constexpr DataType type = DataType::i64;
using Values = std::vector<std::int64_t>;

std::unique_ptr<OnDevice> uploaded(const Values& values) {
  std::vector<std::byte> bytes(values.size() * sizeof values[0]);
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return std::make_unique<OnDevice>(bytes);
}

/// Element i of rank `rank`.
std::int64_t value(int rank, std::size_t i) {
  return static_cast<std::int64_t>(i) + 3 * static_cast<std::int64_t>(rank);
}
Values values_of(int rank, std::size_t elements) {
  Values values(elements);
  for (std::size_t i = 0; i < elements; ++i) values[i] = value(rank, i);
  return values;
}

/// A rank's expected output.
Values expected(Collective collective, ReduceOp op, int rank, int ranks, int root) {
  const std::int64_t n = ranks;
  const auto reduced = [&](std::size_t i) {
    if (op == ReduceOp::max) return value(ranks - 1, i);
    const std::int64_t sum = n * static_cast<std::int64_t>(i) + 3 * n * (n - 1) / 2;
    return op == ReduceOp::avg ? sum / n : sum;
  };
  Values result;
  const std::size_t elements = collective == Collective::all_gather ? count * ranks : count;
  for (std::size_t i = 0; i < elements; ++i) {
    switch (collective) {
      case Collective::all_gather:
        result.push_back(value(static_cast<int>(i / count), i % count));
        break;
      case Collective::broadcast:
        result.push_back(value(root, i));
        break;
      case Collective::reduce_scatter:
        result.push_back(reduced(static_cast<std::size_t>(rank) * count + i));
        break;
      default:
        result.push_back(rank == root || collective == Collective::all_reduce ? reduced(i) : -1);
    }
  }
  return result;
}

void call(DeviceCommunicator& device, Collective collective, ReduceOp op, int root, const std::byte* in,
          std::byte* out, cudaStream_t stream) {
  switch (collective) {
    case Collective::all_reduce:
      return device.all_reduce(in, out, count, type, op, stream);
    case Collective::reduce_scatter:
      return device.reduce_scatter(in, out, count, type, op, stream);
    case Collective::all_gather:
      return device.all_gather(in, out, count, type, stream);
    case Collective::broadcast:
      return device.broadcast(in, out, count, type, root, stream);
    default:
      return device.reduce(in, out, count, type, op, root, stream);
  }
}

std::vector<ReduceOp> ops_of(Collective collective) {
  const bool reduces = collective != Collective::broadcast && collective != Collective::all_gather;
  return reduces ? std::vector{ReduceOp::sum, ReduceOp::avg, ReduceOp::max} : std::vector{ReduceOp::sum};
}

}  // namespace

std::string PlanJob::host_of(int rank) const { return fmt::format("host{}", rank / ranks_of_host); }

std::vector<Plan> given_plans(const PlanJob& job) {
  std::vector<Plan> plans;
  for (const Collective collective : job.collectives) {
    Plan& plan = plans.emplace_back();
    plan.collective = collective;
    plan.decomposition = job.dimensions.size() == 1
                             ? topology::Decomposition({job.ranks()}, {})
                             : topology::Decomposition({job.ranks_of_host}, {job.hosts});
    plan.dimensions = job.dimensions;
    plan.chunks = job.chunks;
    plan.order.resize(static_cast<std::size_t>(job.ranks()));
    std::iota(plan.order.begin(), plan.order.end(), 0);
    plan.order_name = "by host";
  }
  return plans;
}

std::map<Collective, std::uint64_t> run_plan_calls(Context& context, const PlanJob& job) {
  std::map<Collective, std::uint64_t> printed;
  int devices = 0;
  EXPECT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
  const int own = context.rank() % devices;
  EXPECT_EQ(cudaSetDevice(own), cudaSuccess);
  const Stream stream;
  // Chunks exceed the staging memory between two dimensions, so that they are cut again.
  DeviceCommunicator device(context,
                            {.device = own, .staging_bytes = std::size_t{1} << 20, .path = job.path});
  const int ranks = context.size();
  const auto all = static_cast<std::size_t>(ranks);
  for (const Collective collective : job.collectives) {
    const std::size_t pieces = topology::has_pieces(collective) ? all : 1;
    const Plan plan = device.plan(collective, pieces * count * size_of(type), type);
    printed[collective] = topology::hash(plan);
    EXPECT_EQ(plan.dimensions, job.dimensions) << summary(plan);
    EXPECT_EQ(plan.chunks, job.chunks);
    EXPECT_EQ(plan.predicted_us > 0, ranks > 1) << plan.predicted_us;
    EXPECT_EQ(plan.topology_hash, device.topology().hash());
    const std::size_t inputs = collective == Collective::reduce_scatter ? all * count : count;
    const std::size_t outputs = collective == Collective::all_gather ? all * count : count;
    const auto input = uploaded(values_of(context.rank(), inputs));
    const int root = ranks - 1;
    const std::vector<ReduceOp> called = ops_of(collective);
    std::vector<std::unique_ptr<OnDevice>> results;
    for (std::size_t i = 0; i < called.size(); ++i) results.push_back(uploaded(Values(outputs, -1)));
    // No rank may allocate or free memory while kernels of other ranks wait.
    context.communicator().barrier();
    for (std::size_t i = 0; i < called.size(); ++i) {
      call(device, collective, called[i], root, input->data(), results[i]->data(), stream);
    }
    device.wait(stream);
    context.communicator().barrier();
    for (std::size_t op = 0; op < called.size(); ++op) {
      Values found(outputs);
      std::memcpy(found.data(), results[op]->bytes().data(), outputs * sizeof found[0]);
      const Values wanted = expected(collective, called[op], context.rank(), ranks, root);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < outputs; ++i) wrong += found[i] == wanted[i] ? 0 : 1;
      EXPECT_EQ(wrong, 0U) << "rank " << context.rank() << ", " << to_string(called[op]) << ", "
                           << summary(plan);
    }
  }
  device.release(stream);
  return printed;
}

void expect_executed(const std::string& file, const PlanJob& job,
                     const std::map<Collective, std::uint64_t>& printed) {
  const Trace trace(file);
  std::set<std::string> carriers;
  for (const auto& dimension : job.dimensions) carriers.emplace(to_string(dimension.carrier));
  for (int rank = 0; rank < job.ranks(); ++rank) {
    std::map<std::uint64_t, std::set<int>> executed;  // dimensions by plan
    for (const Collective part : topology::planned_collectives()) {
      for (const std::string& carrier : carriers) {
        for (const auto& event : trace.named(fmt::format("{} by {}", to_string(part), carrier), rank)) {
          const auto plan = static_cast<std::uint64_t>(event.at("args").at("plan").get<std::int64_t>());
          executed[plan].insert(event.at("args").at("dimension").get<int>());
        }
      }
    }
    EXPECT_EQ(executed.size(), printed.size()) << "rank " << rank;
    for (const auto& [collective, plan] : printed) {
      // To and from a root, data of other hosts go only through the ranks with the root's index on its host.
      const bool is_on_way =
          !topology::has_root(collective) || rank % job.ranks_of_host == job.ranks_of_host - 1;
      EXPECT_EQ(executed[plan].size(), is_on_way ? job.dimensions.size() : 1)
          << "rank " << rank << ", " << to_string(collective);
    }
  }
}

void run_plan_job(const PlanJob& job) {
  const TemporaryDirectory directory;
  InProcessOptions options;
  options.context.timeline = (directory.path() / "trace.json").string();
  options.context.plans = given_plans(job);
  for (int rank = 0; rank < job.ranks(); ++rank) options.hosts.push_back(job.host_of(rank));
  std::map<Collective, std::uint64_t> printed;
  run_in_process(
      job.ranks(),
      [&](Context& context) {
        const auto found = run_plan_calls(context, job);
        if (context.is_root()) printed = found;
      },
      options);
  if (testing::Test::HasFailure() || job.ranks() == 1) return;
  expect_executed(options.context.timeline, job, printed);
}

}  // namespace ddl::test
