// Ranks that plan or call differently. Otherwise they would wait for each other until the deadline, or mix up
// each other's data.

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/communicator/communicator_impl.hpp"
#include "collectives/communicator/plan_book.hpp"
#include "collectives/transports/shared_memory/host_memory.hpp"
#include "ddl/context.hpp"
#include "ddl/topology/verifier.hpp"

namespace ddl::collectives {
namespace {

/// The errors of a call in which each rank has its own plans.
std::vector<std::string> errors_of(const std::vector<PlanWishes>& wishes,
                                   const std::function<void(Communicator&)>& call) {
  const int ranks = static_cast<int>(wishes.size());
  const auto memory = HostMemory::in_process(ranks);
  std::vector<std::string> errors(wishes.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      EngineSettings engine{.rank = rank,
                            .map = topology::RankMap(std::vector<std::string>(wishes.size(), "host"))};
      engine.memory = memory;
      for (int i = 0; i < ranks; ++i) engine.members.push_back(i);
      CommunicatorSettings settings;
      settings.rank = rank;
      settings.map = engine.map;
      settings.members = engine.members;
      settings.plans = std::make_shared<PlanBook>(
          ranks, [&] { return std::make_shared<const topology::Topology>(topology::make_preset("host:8")); },
          wishes[static_cast<std::size_t>(rank)]);
      const auto job =
          std::make_shared<Job>(std::make_shared<Engine>(std::move(engine)), std::chrono::seconds(60), 4);
      Communicator communicator(std::make_shared<CommunicatorImpl>(job, std::move(settings)));
      try {
        call(communicator);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
      job->close();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

topology::Plan tree_of(int ranks) {
  topology::Plan plan;
  plan.decomposition = topology::Decomposition({ranks}, {});
  plan.dimensions = {{topology::Algorithm::tree}};
  plan.order.clear();
  for (int i = 0; i < ranks; ++i) plan.order.push_back(i);
  return plan;
}

TEST(PlanAgreement, ADifferentPlanIsAnErrorOnEveryRank) {
  PlanWishes tree;
  tree.plans = {tree_of(3)};
  PlanWishes ring = tree;
  ring.plans[0].dimensions[0].algorithm = topology::Algorithm::ring;
  const std::vector<std::string> errors = errors_of({tree, ring, tree}, [](Communicator& communicator) {
    std::vector<float> values(1'000);
    communicator.all_reduce(values.data(), values.size(), DataType::f32, ReduceOp::sum);
  });
  for (const std::string& error : errors) {
    for (const char* part : {"all_reduce #1", "1000 f32", "another plan", "DDL_PLAN"}) {
      EXPECT_NE(error.find(part), std::string::npos) << part << " is missing in: " << error;
    }
  }
  EXPECT_NE(errors[0].find("tree"), std::string::npos) << errors[0];
  EXPECT_NE(errors[1].find("ring"), std::string::npos) << errors[1];
}

TEST(PlanAgreement, ADifferentCallIsAnErrorOnEveryRank) {
  const std::vector<std::function<void(Communicator&)>> calls{
      [](Communicator& c) {
        std::vector<double> values(1'000);
        c.all_reduce(values.data(), values.size(), DataType::f64, ReduceOp::sum);
      },
      [](Communicator& c) {
        std::vector<double> values(100'000);
        c.all_reduce(values.data(), values.size(), DataType::f64, ReduceOp::sum);
      },
      [](Communicator& c) {
        std::vector<std::int64_t> values(1'000);
        c.all_reduce(values.data(), values.size(), DataType::i64, ReduceOp::sum);
      },
      [](Communicator& c) {
        std::vector<double> values(1'000);
        c.broadcast(values);
      },
  };
  for (std::size_t other = 1; other < calls.size(); ++other) {
    const auto errors = errors_of({PlanWishes{}, PlanWishes{}}, [&](Communicator& communicator) {
      calls[communicator.rank() == 0 ? 0 : other](communicator);
    });
    for (const std::string& error : errors) EXPECT_NE(error.find("called something else"), std::string::npos);
  }
}

// The messages of these calls never meet: one rank compares plans, the others are in a call that they know.
TEST(PlanAgreement, ADifferentCallIsFoundBeforeTheDeadline) {
  for (int odd = 0; odd < 4; ++odd) {
    const auto errors = errors_of(std::vector<PlanWishes>(4), [&](Communicator& communicator) {
      std::int64_t known = 0;
      communicator.all_reduce(&known, 1, DataType::i64, ReduceOp::min);
      double fresh = 0;
      if (communicator.rank() == odd) {
        communicator.all_reduce(&fresh, 1, DataType::f64, ReduceOp::sum);
      } else {
        communicator.all_reduce(&known, 1, DataType::i64, ReduceOp::min);
      }
    });
    for (const std::string& error : errors) {
      EXPECT_NE(error.find("all_reduce #2"), std::string::npos) << error;
      EXPECT_EQ(error.find("deadline"), std::string::npos) << error;
    }
  }
}

// The comparison itself would hang.
TEST(PlanAgreement, TheComparisonFindsOneAmongMany) {
  for (const int ranks : {2, 3, 5, 8}) {
    for (int odd = -1; odd < ranks; ++odd) {
      std::vector<PlanWishes> wishes(static_cast<std::size_t>(ranks));
      for (int rank = 0; rank < ranks; ++rank) {
        PlanWishes& own = wishes[static_cast<std::size_t>(rank)];
        own.plans = {tree_of(ranks)};
        if (rank == odd) own.plans[0].chunks = 2;
      }
      const auto errors = errors_of(wishes, [](Communicator& communicator) {
        float value = 1;
        communicator.all_reduce(&value, 1, DataType::f32, ReduceOp::sum);
        EXPECT_EQ(value, static_cast<float>(communicator.size()));
      });
      for (const std::string& error : errors) EXPECT_EQ(error.empty(), odd < 0) << error;
    }
  }
}

TEST(PlanAgreement, NumbersThatAreEqualAndNumbersThatAreNot) {
  for (const std::uint64_t value :
       {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}, std::uint64_t{1} << 63}) {
    const auto own = comparison_of(value);
    EXPECT_TRUE(are_equal(own));
    const auto other = comparison_of(value ^ 5);
    EXPECT_FALSE(are_equal({std::max(own[0], other[0]), std::max(own[1], other[1])}));
  }
}

}  // namespace
}  // namespace ddl::collectives
