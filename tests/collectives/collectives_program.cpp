// collectives_program PROCESSES [fail | differ | ALGORITHM GRID]: checks the collectives among processes.
// ctest starts it alone and under mpirun, with and without emulated hosts. With an algorithm and a grid
// (`tree 2x2`), the plans of all collectives use this algorithm in each dimension of the grid. With `fail`,
// rank 1 throws while the others wait; with `differ`, it makes a different call.

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <vector>

#include "ddl/ddl.hpp"

namespace {

[[noreturn]] void fail_with(std::string_view what) {
  throw ddl::Error(ddl::ErrorCode::internal, fmt::format("wrong: {}", what));
}

void require(bool condition, std::string_view what) {
  if (!condition) fail_with(what);
}

template <ddl::Element T>
void check_all_reduce(ddl::Context& context, std::size_t count) {
  const int n = context.size();
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<T>((i + static_cast<std::size_t>(context.rank())) % 5);
  context.communicator().all_reduce(std::span(values));
  for (std::size_t i = 0; i < count; ++i) {
    T expected{};
    for (int rank = 0; rank < n; ++rank) {
      expected = static_cast<T>(expected + static_cast<T>((i + static_cast<std::size_t>(rank)) % 5));
    }
    if (values[i] != expected)
      fail_with(fmt::format("all_reduce of {} {}, element {}", count, to_string(ddl::data_type_of<T>()), i));
  }
}

void check_broadcast(ddl::Context& context, std::size_t count, int root) {
  std::vector<float> values(count, -1);
  if (context.rank() == root) {
    for (std::size_t i = 0; i < count; ++i)
      values[i] = static_cast<float>(i % 1000) + static_cast<float>(root);
  }
  context.communicator().broadcast(std::span(values), root);
  for (std::size_t i = 0; i < count; ++i) {
    if (values[i] != static_cast<float>(i % 1000) + static_cast<float>(root))
      fail_with(fmt::format("broadcast of {} from {}, element {}", count, root, i));
  }
}

/// Checks all other collectives, alternately on memory that the ranks of a host share and on private memory.
void check_pieces(ddl::Context& context, ddl::Communicator& c, std::size_t count, bool is_shared) {
  const auto n = static_cast<std::size_t>(c.size());
  const auto own = static_cast<std::size_t>(c.rank()) * count;
  const int root = c.size() - 1;
  constexpr ddl::DataType f32 = ddl::DataType::f32;
  ddl::SharedBuffer<float> shared = ddl::allocate<float>(context, is_shared ? 2 * n * count : 0);
  std::vector<float> plain(is_shared ? 0 : 2 * n * count);
  float* const input = is_shared ? shared.data() : plain.data();
  float* const output = input + n * count;
  const auto value = [](std::size_t i) { return static_cast<float>(i % 100); };
  const auto refill = [&] {
    for (std::size_t i = 0; i < n * count; ++i) input[i] = value(i) + static_cast<float>(c.rank());
    std::fill(output, output + n * count, -1.0F);
  };
  const float ranks = static_cast<float>(n);
  const float offset = ranks * (ranks - 1) / 2;
  const auto require_all = [&](const char* what, const float* values, std::size_t many,
                               const auto& expected) {
    for (std::size_t i = 0; i < many; ++i) {
      if (values[i] != expected(i))
        fail_with(fmt::format("{} of {}, element {}: {}", what, count, i, values[i]));
    }
  };
  refill();
  c.reduce_scatter(input, output, count, f32, ddl::ReduceOp::sum);
  require_all("reduce_scatter", output, count,
              [&](std::size_t i) { return ranks * value(own + i) + offset; });
  c.all_gather(output, input, count, f32);
  require_all("all_gather", input, n * count, [&](std::size_t i) { return ranks * value(i) + offset; });
  refill();
  ddl::Work reduced = c.reduce_async(input, output, n * count, f32, ddl::ReduceOp::avg, root);
  reduced.wait();
  if (c.rank() == root) {
    require_all("reduce", output, n * count, [&](std::size_t i) { return value(i) + offset / ranks; });
  }
  c.broadcast_async(input, output, n * count, f32, root).wait();
  require_all("broadcast", output, n * count,
              [&](std::size_t i) { return value(i) + static_cast<float>(root); });
  refill();
  c.all_reduce_async(input, output, n * count, f32, ddl::ReduceOp::max).wait();
  require_all("all_reduce", output, n * count, [&](std::size_t i) { return value(i) + ranks - 1; });
  c.all_reduce_async(input, input, n * count, f32, ddl::ReduceOp::min).wait();
  require_all("all_reduce in place", input, n * count, value);
  refill();
  c.broadcast_async(input, input, n * count, f32, root).wait();
  require_all("broadcast in place", input, n * count,
              [&](std::size_t i) { return value(i) + static_cast<float>(root); });
  std::fill_n(input + own, count, static_cast<float>(c.rank()));
  c.all_gather(input + own, input, count, f32);
  require_all("all_gather in place", input, n * count,
              [&](std::size_t i) { return static_cast<float>(i / count); });
}

/// So many that calls write past the caches, copy by copy, as they do beyond a quarter of the third-level
/// cache.
std::size_t elements_beyond_caches() {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");
  std::size_t kib = std::size_t{32} << 10;
  file >> kib;
  return std::min((kib << 10) / 4, std::size_t{128} << 20) / sizeof(float) + 1000;
}

/// Uses communicators in a different order on each rank, with many calls in flight on each.
void check_order(ddl::Context& context) {
  ddl::Communicator& whole = context.communicator();
  ddl::Communicator reversed = whole.split(0, -whole.rank());
  ddl::Communicator halves = whole.split(whole.rank() % 2);
  std::vector<ddl::Communicator*> all{&whole, &reversed, &halves};
  constexpr std::size_t calls = 20;
  std::vector<std::vector<float>> values(3 * calls);
  std::vector<ddl::Work> works(3 * calls);
  for (std::size_t i = 0; i < calls; ++i) {
    for (std::size_t k = 0; k < 3; ++k) {
      const std::size_t which = (k + static_cast<std::size_t>(whole.rank())) % 3;
      std::vector<float>& mine = values[3 * i + which];
      mine.assign(1 + i * i * 97, 1.0F);
      works[3 * i + which] = all[which]->all_reduce_async(std::span(mine));
    }
  }
  for (std::size_t i = 3 * calls; i-- > 0;) works[i].wait();
  for (std::size_t i = 0; i < 3 * calls; ++i) {
    for (const float value : values[i]) {
      require(value == static_cast<float>(all[i % 3]->size()), "calls of several communicators");
    }
  }
  for (const bool is_shared : {false, true}) check_pieces(context, halves, 12'345, is_shared);
}

void check_agreement(ddl::Context& context) {
  int runs = 0;
  context.root_only("count", [&] { ++runs; });
  require(runs == (context.is_root() ? 1 : 0), "root_only ran elsewhere");
  try {
    context.on_all_ranks("agree", [&] {
      if (context.rank() == context.size() - 1) throw ddl::Error(ddl::ErrorCode::io, "no file");
    });
    require(false, "on_all_ranks did not throw");
  } catch (const ddl::Error& error) {
    require(error.agreed() && error.code() == ddl::ErrorCode::io, error.what());
  }
  require(context.broadcast_string(context.is_root() ? "name" : "") == "name", "broadcast_string");
}

int check_everything(ddl::Context& context, int processes) {
  require(context.size() == processes, fmt::format("{} ranks, expected {}", context.size(), processes));
  const auto n = static_cast<std::size_t>(processes);
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{7}, n - 1, n, n + 1,
                                  std::size_t{9973}, std::size_t{1'000'003}}) {
    check_all_reduce<float>(context, count);
    check_all_reduce<std::uint8_t>(context, count);
    check_all_reduce<std::int64_t>(context, count);
    for (int root = 0; root < processes; ++root) check_broadcast(context, count, root);
    context.communicator().barrier();
  }
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{77}, std::size_t{150'001}}) {
    for (const bool is_shared : {false, true})
      check_pieces(context, context.communicator(), count, is_shared);
  }
  if (context.hosts() == 1) {
    // Beyond a core's cache, and beyond all caches.
    for (const std::size_t elements : {std::size_t{1'000'003}, elements_beyond_caches()})
      check_pieces(context, context.communicator(), elements / static_cast<std::size_t>(context.size()),
                   false);
  }
  check_order(context);
  for (int repeat = 0; repeat < 200; ++repeat) check_all_reduce<double>(context, 3);
  check_agreement(context);
  return 0;
}

/// Plans that use only one algorithm, with the ranks in reverse order.
std::vector<ddl::topology::Plan> plans_of(std::string_view algorithm, std::string_view grid, int processes) {
  using ddl::topology::Algorithm;
  using ddl::topology::Collective;
  std::vector<ddl::topology::Plan> plans;
  for (const Collective collective : {Collective::all_reduce, Collective::broadcast}) {
    for (int value = 0; value <= static_cast<int>(Algorithm::double_tree); ++value) {
      const auto candidate = static_cast<Algorithm>(value);
      if (to_string(candidate) != algorithm) continue;
      ddl::topology::Plan plan;
      plan.collective = collective;
      plan.decomposition = ddl::topology::Decomposition::parse(grid, processes);
      plan.dimensions.assign(static_cast<std::size_t>(plan.decomposition.dimensions()), {candidate});
      plan.order.clear();
      for (int rank = processes; rank-- > 0;) plan.order.push_back(rank);
      plan.chunks = 3;
      try {
        require_valid(plan);
        plans.push_back(plan);
      } catch (const ddl::Error&) {  // the algorithm does not exist for this collective
      }
    }
  }
  if (plans.empty()) fail_with(fmt::format("no collective has the algorithm {}", algorithm));
  return plans;
}

int call_differently(ddl::Context& context) {
  std::vector<float> values(context.rank() == 1 ? 100'000 : 10);
  context.communicator().all_reduce(std::span(values));
  return 0;
}

int check_plans(std::string_view algorithm, std::string_view grid, int processes) {
  ddl::ContextOptions options = ddl::ContextOptions::from_environment();
  options.plans = plans_of(algorithm, grid, processes);
  ddl::Context context = ddl::Context::from_environment(options);
  return context.run([&] { return check_everything(context, processes); });
}

}  // namespace

int main(int argc, char** argv) {
  const int processes = argc > 1 ? std::atoi(argv[1]) : 0;
  if (argc > 3) return check_plans(argv[2], argv[3], processes);
  const bool fail = argc > 2 && std::string_view(argv[2]) == "fail";
  const bool differ = argc > 2 && std::string_view(argv[2]) == "differ";
  return ddl::Context::run_from_environment([&](ddl::Context& context) {
    if (differ) return call_differently(context);
    if (fail && context.rank() == 1) throw ddl::Error(ddl::ErrorCode::internal, "rank 1 fails alone");
    return check_everything(context, processes);
  });
}
