// Every kind of plan run with real data, against a serial result in fp64. Otherwise a plan that the planner
// chooses on some machine would give wrong gradients there.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "ddl/context.hpp"
#include "support/thrown_error.hpp"

namespace ddl {
namespace {

using topology::Algorithm;
using topology::Collective;
using topology::Decomposition;
using topology::Plan;

struct Layout {
  const char* name;
  std::vector<std::string> hosts;
};

std::vector<Layout> layouts_of(int ranks) {
  std::vector<std::string> by_host;
  std::vector<std::string> in_turn;
  for (int rank = 0; rank < ranks; ++rank) {
    by_host.push_back(rank < (2 * ranks + 2) / 3 ? "a" : "b");  // hosts of unequal size
    in_turn.push_back(std::string(1, static_cast<char>('a' + rank % 3)));
  }
  return {{"one host", {}}, {"unequal hosts", by_host}, {"round-robin", in_turn}};
}

/// A permutation that differs from its inverse, so that results are wrong if order and rank are mixed up.
std::vector<int> shuffled(int ranks) {
  std::vector<int> order(static_cast<std::size_t>(ranks));
  std::iota(order.begin(), order.end(), 0);
  std::reverse(order.begin(), order.end());
  std::rotate(order.begin(), order.begin() + ranks / 3, order.end());
  return order;
}

Plan make_plan(Collective collective, const Decomposition& decomposition, std::vector<Algorithm> algorithms,
               int chunks) {
  Plan plan;
  plan.collective = collective;
  plan.decomposition = decomposition;
  plan.dimensions.clear();
  for (const Algorithm algorithm : algorithms) plan.dimensions.push_back({algorithm});
  plan.order = shuffled(decomposition.ranks());
  plan.order_name = "shuffled";
  plan.chunks = chunks;
  return plan;
}

std::string describe(const Plan& plan, const Layout& layout) {
  std::string text = fmt::format("{} {}", to_string(plan.collective), to_string(plan.decomposition));
  for (const auto& dimension : plan.dimensions) text += fmt::format(" {}", to_string(dimension.algorithm));
  return text + fmt::format(", {} chunks, {}", plan.chunks, layout.name);
}

InProcessOptions options_for(const Plan& plan, const Layout& layout) {
  InProcessOptions options;
  options.context.deadline = std::chrono::seconds(60);
  options.context.plans = {plan};
  options.hosts = layout.hosts;
  return options;
}

float contribution(int rank, std::size_t i) {
  return static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 5 + i / 100) % 16);
}

std::vector<float> serial_sum(int ranks, std::size_t count) {
  std::vector<float> result(count);
  for (std::size_t i = 0; i < count; ++i) {
    double sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += contribution(rank, i);
    result[i] = static_cast<float>(sum);
  }
  return result;
}

void expect_all_reduce_right(const Plan& plan, const Layout& layout) {
  SCOPED_TRACE(describe(plan, layout));
  const int ranks = plan.decomposition.ranks();
  const auto n = static_cast<std::size_t>(ranks);
  run_in_process(
      ranks,
      [&](Context& context) {
        for (const std::size_t count :
             {std::size_t{1}, n - 1, n + 1, std::size_t{1009}, std::size_t{50'021}}) {
          if (count == 0) continue;
          std::vector<float> values(count);
          for (std::size_t i = 0; i < count; ++i) values[i] = contribution(context.rank(), i);
          context.communicator().all_reduce(std::span(values));
          const std::vector<float> expected = serial_sum(ranks, count);
          const auto wrong = std::ranges::mismatch(values, expected).in1 - values.begin();
          ASSERT_EQ(static_cast<std::size_t>(wrong), count)
              << "rank " << context.rank() << ", count " << count;
        }
        // The mean is divided once, by the number of all ranks.
        std::vector<double> ones(37, 3.0);
        context.communicator().all_reduce(std::span(ones), ReduceOp::avg);
        ASSERT_EQ(ones, std::vector<double>(37, 3.0));
        // The call really uses that plan.
        const Plan used = context.communicator().plan(Collective::all_reduce, 4, DataType::f32);
        ASSERT_EQ(topology::hash(used), topology::hash(plan));
      },
      options_for(plan, layout));
}

void expect_broadcast_right(const Plan& plan, const Layout& layout) {
  SCOPED_TRACE(describe(plan, layout));
  const int ranks = plan.decomposition.ranks();
  run_in_process(
      ranks,
      [&](Context& context) {
        for (int root = 0; root < ranks; ++root) {
          for (const std::size_t count : {1, 2, 1009, 50'021}) {
            std::vector<std::uint8_t> expected(count);
            for (std::size_t i = 0; i < count; ++i)
              expected[i] = static_cast<std::uint8_t>(i * 3 + i / 251 + 1);
            std::vector<std::uint8_t> values(count);
            if (context.rank() == root) values = expected;
            context.communicator().broadcast(std::span(values), root);
            ASSERT_TRUE(values == expected)
                << "root " << root << ", rank " << context.rank() << ", " << count;
          }
        }
      },
      options_for(plan, layout));
}

/// Checks that sums whose partial sums are exact in 16 bits are right, that all ranks have the same bits of
/// other sums, and that later calls compensate rounding errors.
void expect_wire_right(Plan plan, DataType wire, const Layout& layout) {
  SCOPED_TRACE(describe(plan, layout));
  for (topology::PlanDimension& dimension : plan.dimensions) {
    dimension.carrier = topology::Carrier::network;
    dimension.wire = wire;
  }
  const int ranks = plan.decomposition.ranks();
  run_in_process(
      ranks,
      [&](Context& context) {
        Communicator& all = context.communicator();
        for (const std::size_t count : {std::size_t{1}, std::size_t{1009}, std::size_t{50'021}}) {
          std::vector<float> values(count);
          for (std::size_t i = 0; i < count; ++i) values[i] = contribution(context.rank(), i);
          all.all_reduce_async(std::span(values), {wire}).wait();
          ASSERT_TRUE(values == serial_sum(ranks, count)) << "rank " << context.rank() << ", count " << count;
        }
        constexpr std::size_t count = 3001;
        constexpr int calls = 40;
        const std::size_t size = all.residual_size(Collective::all_reduce, count, wire);
        std::vector<float> kept(size), left(size);
        std::vector<double> sums(count, 0);
        double largest = 0;
        for (int call = 0; call < calls; ++call) {
          std::vector<float> values(count);
          for (std::size_t i = 0; i < count; ++i) {
            values[i] = 1.0F / static_cast<float>(1 + contribution(context.rank(), i));
          }
          all.all_reduce_async(std::span(values), {wire, kept, left}).wait();
          kept.swap(left);
          std::vector<float> greatest = values;
          all.all_reduce(std::span(greatest), ReduceOp::max);
          ASSERT_TRUE(greatest == values) << "rank " << context.rank() << " has other bits";
          for (std::size_t i = 0; i < count; ++i) sums[i] += values[i];
        }
        const double unit = wire == DataType::bf16 ? 0x1p-8 : 0x1p-11;
        for (std::size_t i = 0; i < count; ++i) {
          double exact = 0;
          for (int rank = 0; rank < ranks; ++rank)
            exact += 1.0F / static_cast<float>(1 + contribution(rank, i));
          largest = std::max(largest, std::abs(sums[i] - calls * exact) / exact);
        }
        // Without error feedback, errors of half a unit each would add up to about 10 units.
        EXPECT_LT(largest, 4 * unit) << "rank " << context.rank();
      },
      options_for(plan, layout));
}

constexpr std::array all_reduce_algorithms = {Algorithm::ring, Algorithm::halving_doubling,
                                              Algorithm::two_shot, Algorithm::one_shot, Algorithm::tree};
constexpr std::array broadcast_algorithms = {Algorithm::ring, Algorithm::two_shot, Algorithm::one_shot,
                                             Algorithm::tree, Algorithm::double_tree};

TEST(PlanExecution, EveryAllReduceAlgorithmInOneDimension) {
  for (const Algorithm algorithm : all_reduce_algorithms) {
    for (const int ranks : {2, 3, 5, 6, 8}) {
      for (const int chunks : {1, 5}) {
        const Plan plan = make_plan(Collective::all_reduce, Decomposition({ranks}, {}), {algorithm}, chunks);
        for (const Layout& layout : layouts_of(ranks)) {
          ASSERT_NO_FATAL_FAILURE(expect_all_reduce_right(plan, layout));
        }
      }
    }
  }
}

TEST(PlanExecution, EveryPairOfAllReduceAlgorithmsInTwoDimensions) {
  for (const Algorithm inner : all_reduce_algorithms) {
    for (const Algorithm outer : all_reduce_algorithms) {
      for (const Decomposition& grid : {Decomposition({3}, {2}), Decomposition({2}, {4})}) {
        const Plan plan = make_plan(Collective::all_reduce, grid, {inner, outer}, 4);
        ASSERT_NO_FATAL_FAILURE(expect_all_reduce_right(plan, layouts_of(grid.ranks()).back()));
      }
    }
  }
}

/// Each of the orders is another permutation.
Plan with_orders(Plan plan, int further) {
  for (int i = 0; i < further; ++i) {
    plan.further_orders.push_back(i % 2 == 0 ? std::vector(plan.order.rbegin(), plan.order.rend())
                                             : shuffled(plan.decomposition.ranks()));
    std::ranges::rotate(plan.further_orders.back(), plan.further_orders.back().begin() + i % 2 + 1);
  }
  return plan;
}

// Rings over different links would mix up one another's parts.
TEST(PlanExecution, SeveralOrdersAtOnce) {
  for (const Algorithm algorithm : all_reduce_algorithms) {
    for (const int chunks : {1, 5}) {
      const Plan flat = make_plan(Collective::all_reduce, Decomposition({6}, {}), {algorithm}, chunks);
      const Plan grid =
          make_plan(Collective::all_reduce, Decomposition({3}, {2}), {Algorithm::ring, algorithm}, chunks);
      for (const Layout& layout : layouts_of(6)) {
        ASSERT_NO_FATAL_FAILURE(expect_all_reduce_right(with_orders(flat, 5), layout));
        ASSERT_NO_FATAL_FAILURE(expect_all_reduce_right(with_orders(grid, 2), layout));
      }
      if (chunks > 1) expect_wire_right(with_orders(grid, 1), DataType::bf16, layouts_of(6)[2]);
    }
  }
  for (const Algorithm algorithm : broadcast_algorithms) {
    const Plan plan = make_plan(Collective::broadcast, Decomposition({6}, {}), {algorithm}, 3);
    ASSERT_NO_FATAL_FAILURE(expect_broadcast_right(with_orders(plan, 3), layouts_of(6)[1]));
  }
}

TEST(PlanExecution, UnequalHostsKeepTheHierarchy) {
  for (const Algorithm inner : all_reduce_algorithms) {
    if (inner == Algorithm::one_shot) continue;  // not in a ragged dimension
    for (const Algorithm outer : all_reduce_algorithms) {
      for (const int chunks : {1, 3}) {
        const Plan plan =
            make_plan(Collective::all_reduce, Decomposition({4, 1, 3}, {3}), {inner, outer}, chunks);
        ASSERT_NO_FATAL_FAILURE(expect_all_reduce_right(plan, layouts_of(8)[1]));
      }
    }
  }
}

// Gradients in 16 bits would differ between ranks, or lose their small parts.
TEST(PlanExecution, WiresOfEveryAlgorithm) {
  for (const Algorithm inner : all_reduce_algorithms) {
    for (const Algorithm outer : all_reduce_algorithms) {
      const DataType wire = inner == outer ? DataType::f16 : DataType::bf16;
      const Plan flat = make_plan(Collective::all_reduce, Decomposition({6}, {}), {inner}, 1);
      const Plan grid = make_plan(Collective::all_reduce, Decomposition({2}, {3}), {inner, outer}, 3);
      ASSERT_NO_FATAL_FAILURE(expect_wire_right(flat, wire, layouts_of(6)[1]));
      ASSERT_NO_FATAL_FAILURE(expect_wire_right(grid, wire, layouts_of(6)[2]));
      if (inner == Algorithm::one_shot) continue;  // not in a ragged dimension
      const Plan ragged = make_plan(Collective::all_reduce, Decomposition({3, 1, 2}, {3}), {inner, outer}, 2);
      ASSERT_NO_FATAL_FAILURE(expect_wire_right(ragged, wire, layouts_of(6)[1]));
    }
  }
}

TEST(PlanExecution, WiresThatCannotBeAreRefused) {
  run_in_process(2, [](Context& context) {
    Communicator& all = context.communicator();
    std::vector<float> values(100), none_fits(1);
    test::expect_error(ErrorCode::invalid_argument, {"wire type f32", "bf16 or f16"},
                       [&] { all.all_reduce_async(std::span(values), {DataType::f32}).wait(); });
    test::expect_error(ErrorCode::invalid_argument,
                       {"1 elements in Wire::kept", "0 in Wire::left", "residual_size"}, [&] {
                         all.all_reduce_async(std::span(values), {DataType::bf16, none_fits}).wait();
                       });
    // Nothing is rounded inside a host, so there is no residual.
    EXPECT_EQ(all.residual_size(Collective::all_reduce, values.size(), DataType::bf16), 0U);
    std::ranges::fill(values, 1.0F + 0x1p-20F);
    all.all_reduce_async(std::span(values), {DataType::bf16}).wait();
    EXPECT_EQ(values, std::vector<float>(values.size(), 2.0F + 0x1p-19F));
  });
}

TEST(PlanExecution, ThreeDimensions) {
  const std::vector<std::vector<Algorithm>> mixtures{
      {Algorithm::ring, Algorithm::ring, Algorithm::ring},
      {Algorithm::two_shot, Algorithm::tree, Algorithm::halving_doubling},
      {Algorithm::tree, Algorithm::one_shot, Algorithm::ring},
      {Algorithm::one_shot, Algorithm::one_shot, Algorithm::one_shot},
  };
  for (const auto& algorithms : mixtures) {
    const Plan plan = make_plan(Collective::all_reduce, Decomposition({2}, {3, 2}), algorithms, 6);
    ASSERT_NO_FATAL_FAILURE(expect_all_reduce_right(plan, layouts_of(12)[2]));
  }
}

TEST(PlanExecution, EveryBroadcastAlgorithmFromEveryRoot) {
  for (const Algorithm algorithm : broadcast_algorithms) {
    for (const int ranks : {2, 3, 6, 7}) {
      for (const int chunks : {1, 5}) {
        const Plan plan = make_plan(Collective::broadcast, Decomposition({ranks}, {}), {algorithm}, chunks);
        ASSERT_NO_FATAL_FAILURE(expect_broadcast_right(plan, layouts_of(ranks)[2]));
      }
    }
  }
  for (const Algorithm inner : broadcast_algorithms) {
    for (const Algorithm outer : broadcast_algorithms) {
      for (const Decomposition& grid : {Decomposition({3}, {2}), Decomposition({4, 1, 3}, {3})}) {
        if (grid.ragged() && inner == Algorithm::two_shot) continue;
        const Plan plan = make_plan(Collective::broadcast, grid, {inner, outer}, 3);
        ASSERT_NO_FATAL_FAILURE(expect_broadcast_right(plan, layouts_of(grid.ranks())[1]));
      }
    }
  }
}

// The planner's choice in some mode would give wrong results on some layout.
TEST(PlanExecution, EveryModesChoice) {
  using topology::Mode;
  for (const Mode mode :
       {Mode::explore, Mode::rings, Mode::nccl, Mode::nccl_per_dimension, Mode::scatter_gather, Mode::mpi}) {
    for (const int ranks : {2, 6, 7}) {
      for (const Layout& layout : layouts_of(ranks)) {
        SCOPED_TRACE(fmt::format("mode {}, {} ranks, {}", to_string(mode), ranks, layout.name));
        InProcessOptions options;
        options.context.deadline = std::chrono::seconds(60);
        options.context.mode = mode;
        options.hosts = layout.hosts;
        testing::internal::CaptureStderr();  // warnings of the fallbacks of modes n, b and m
        run_in_process(
            ranks,
            [&](Context& context) {
              for (const std::size_t count : {std::size_t{3}, std::size_t{5'003}, std::size_t{300'001}}) {
                std::vector<float> values(count);
                for (std::size_t i = 0; i < count; ++i) values[i] = contribution(context.rank(), i);
                context.communicator().all_reduce(std::span(values));
                ASSERT_TRUE(values == serial_sum(ranks, count)) << "rank " << context.rank() << ", " << count;
                std::vector<float> sent(count, context.rank() == 1 ? 7.0F : 0.0F);
                context.communicator().broadcast(std::span(sent), 1);
                ASSERT_TRUE(sent == std::vector<float>(count, 7.0F));
              }
            },
            options);
        testing::internal::GetCapturedStderr();
      }
    }
  }
}

// A plan for devices would change reductions on hosts, or cause a needless warning.
TEST(PlanExecution, PlansForDevicesAreNotForHosts) {
  InProcessOptions options;
  options.context.strict = true;
  Plan on_devices = make_plan(Collective::all_reduce, Decomposition({4}, {}), {Algorithm::ring}, 1);
  on_devices.dimensions[0].carrier = topology::Carrier::nccl;
  const Plan on_hosts =
      make_plan(Collective::all_reduce, Decomposition({2}, {2}), {Algorithm::two_shot, Algorithm::tree}, 3);
  for (const bool has_both : {false, true}) {
    options.context.plans = {on_devices};
    if (has_both) options.context.plans.push_back(on_hosts);
    run_in_process(
        4,
        [&](Context& context) {
          const Plan plan = context.communicator().plan(Collective::all_reduce, 1 << 20, DataType::f32);
          EXPECT_TRUE(topology::is_for_hosts(plan)) << summary(plan);
          EXPECT_EQ(plan.decomposition == on_hosts.decomposition && plan.chunks == 3, has_both);
          float value = 1;
          context.communicator().all_reduce(std::span(&value, 1));
          EXPECT_EQ(value, 4);
          EXPECT_TRUE(context.fallbacks().empty());
        },
        options);
  }
}

// A plan for another job would make the job hang, or leave ranks out.
TEST(PlanExecution, PlansThatDoNotFitAreRefused) {
  const auto error_of = [](const std::vector<Plan>& plans) {
    InProcessOptions options;
    options.context.plans = plans;
    return test::message_of(ErrorCode::invalid_argument, [&] {
      run_in_process(
          4, [](Context&) {}, options);
    });
  };
  const Plan fits = make_plan(Collective::all_reduce, Decomposition({4}, {}), {Algorithm::ring}, 1);
  Plan other = make_plan(Collective::all_reduce, Decomposition({5}, {}), {Algorithm::ring}, 1);
  EXPECT_NE(error_of({other}).find("5 ranks, but this job has 4"), std::string::npos) << error_of({other});
  EXPECT_NE(error_of({fits, fits}).find("two plans for all_reduce"), std::string::npos);
  other = fits;
  other.dimensions[0].carrier = topology::Carrier::nccl;
  EXPECT_TRUE(topology::is_for_devices(other) && !topology::is_for_hosts(other));
  EXPECT_NE(error_of({other, fits, other}).find("two plans for all_reduce"), std::string::npos);
  other = make_plan(Collective::all_reduce, Decomposition({2}, {2}), {Algorithm::ring, Algorithm::ring}, 1);
  other.dimensions[0].carrier = topology::Carrier::nccl;
  other.dimensions[1].carrier = topology::Carrier::shared_memory;
  EXPECT_NE(error_of({other}).find("expected one of the two"), std::string::npos) << error_of({other});
  other = fits;
  other.order = {0, 1, 1, 3};
  EXPECT_FALSE(error_of({other}).empty());
  other = fits;
  other.dimensions[0].algorithm = Algorithm::double_tree;
  EXPECT_FALSE(error_of({other}).empty());
}

}  // namespace
}  // namespace ddl
