// The discovery of a topology that all ranks share. Otherwise ranks would choose different plans, or a host
// that cannot be described would end the job.

#include "collectives/communicator/job_topology.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "ddl/context/bootstrap_in_process.hpp"
#include "ddl/error.hpp"

namespace ddl::collectives {
namespace {

using topology::HostDescription;
using topology::RankMap;
using topology::Topology;

HostDescription machine(int packages, int cores) {
  HostDescription host;
  host.hostname = "box";
  for (int i = 0; i < packages; ++i) {
    host.packages.emplace_back();
    host.packages.back().socket = i;
    host.packages.back().cores = cores;
    host.packages.back().cpus = {2 * i, 2 * i + 1};
  }
  host.notes = {"no fan found"};
  return host;
}

/// Each rank's result.
std::vector<JobTopology> on_all_ranks(int ranks, const std::function<JobTopology(Bootstrap&)>& find) {
  const auto job = std::make_shared<InProcessJob>(ranks);
  std::vector<JobTopology> results(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      InProcessBootstrap bootstrap(job, rank);
      results[static_cast<std::size_t>(rank)] = find(bootstrap);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

const RankMap& two_hosts() {
  static const RankMap map({"a", "b", "a", "b", "b"});
  return map;
}

TEST(JobTopology, EachHostIsDescribedByItsLowestRankAndAllGetTheSame) {
  std::atomic<int> described{0};
  const auto results = on_all_ranks(5, [&](Bootstrap& bootstrap) {
    return discover_job(bootstrap, two_hosts(), [&] {
      ++described;
      return machine(2, bootstrap.rank() == 0 ? 4 : 8);
    });
  });
  EXPECT_EQ(described, 2);
  for (const JobTopology& result : results) {
    EXPECT_EQ(*result.topology, *results[0].topology);
    EXPECT_EQ(result.warnings, std::vector<std::string>());
    EXPECT_EQ(result.notes, (std::vector<std::string>{"host a: no fan found", "host b: no fan found"}));
  }
  const Topology& topology = *results[0].topology;
  EXPECT_EQ(topology.hosts().size(), 2U);
  ASSERT_EQ(topology.devices().size(), 5U);
  for (int rank = 0; rank < 5; ++rank) {
    const int device = topology.devices()[static_cast<std::size_t>(rank)];
    EXPECT_EQ(topology.nodes()[static_cast<std::size_t>(device)].host, two_hosts().host_of(rank));
  }
  EXPECT_TRUE(has_same_hosts(topology, two_hosts()));
  EXPECT_FALSE(has_same_hosts(topology, RankMap({"a", "a", "a", "b", "b"})));
  EXPECT_FALSE(has_same_hosts(topology, RankMap({"a", "b", "c", "b", "b"})));
}

TEST(JobTopology, AHostThatCannotBeDescribedIsAWarningNotTheEnd) {
  const auto results = on_all_ranks(5, [&](Bootstrap& bootstrap) {
    return discover_job(bootstrap, two_hosts(), [&]() -> HostDescription {
      if (bootstrap.rank() == 1) throw std::runtime_error("sysfs is on fire");
      return machine(1, 2);
    });
  });
  for (const JobTopology& result : results) {
    EXPECT_EQ(*result.topology, *results[0].topology);
    EXPECT_TRUE(has_same_hosts(*result.topology, two_hosts()));
    ASSERT_EQ(result.warnings.size(), 1U);
    EXPECT_NE(result.warnings[0].find("host b"), std::string::npos);
    EXPECT_NE(result.warnings[0].find("sysfs is on fire"), std::string::npos);
  }
}

TEST(JobTopology, DescriptionsThatDoNotGoTogetherAreReplaced) {
  const auto results = on_all_ranks(5, [&](Bootstrap& bootstrap) {
    return discover_job(bootstrap, two_hosts(), [&] { return machine(bootstrap.rank() == 0 ? 0 : 1, 2); });
  });
  EXPECT_TRUE(has_same_hosts(*results[0].topology, two_hosts()));
  ASSERT_EQ(results[0].warnings.size(), 1U) << "a host without packages goes unnoticed";
  EXPECT_EQ(*results[4].topology, *results[0].topology);
}

TEST(JobTopology, ThreadsAreDescribedOnce) {
  int described = 0;
  const JobTopology result = discover_in_process(two_hosts(), [&] {
    ++described;
    return machine(1, 8);
  });
  EXPECT_EQ(described, 1);
  EXPECT_TRUE(has_same_hosts(*result.topology, two_hosts()));
}

TEST(JobTopology, RankZerosFileReachesAllAndSoDoesItsError) {
  const auto results = on_all_ranks(3, [&](Bootstrap& bootstrap) {
    return share_topology(bootstrap, [&] {
      EXPECT_EQ(bootstrap.rank(), 0);
      return topology::make_preset("ac922:2");
    });
  });
  for (const JobTopology& result : results) EXPECT_EQ(*result.topology, topology::make_preset("ac922:2"));

  std::atomic<int> caught{0};
  on_all_ranks(3, [&](Bootstrap& bootstrap) {
    try {
      share_topology(bootstrap, [&]() -> Topology { throw Error(ErrorCode::io, "no such file"); });
      ADD_FAILURE() << "expected an Error";
    } catch (const Error& error) {
      EXPECT_TRUE(error.agreed());
      EXPECT_EQ(error.code(), ErrorCode::io);
      EXPECT_STREQ(error.what(), "no such file");
      ++caught;
    }
    return JobTopology{};
  });
  EXPECT_EQ(caught, 3);
}

}  // namespace
}  // namespace ddl::collectives
