#include "topology/planner/plan_search.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "topology/plan/phase_figures.hpp"
#include "topology/planner/pattern.hpp"

namespace ddl::topology {
namespace {

/// The sizes of a grid, the first dimension's by group.
struct Grid {
  std::size_t order;
  std::vector<int> groups;  // one entry if all are alike
  std::vector<int> outer;
};

/// Every choice of an algorithm for each dimension.
void add_with_algorithms(const Family& family, const Grid& grid, std::vector<PlanShape>& shapes) {
  const Decomposition decomposition(grid.groups, grid.outer);
  std::vector<std::vector<Algorithm>> choices;
  for (int d = 0; d < decomposition.dimensions(); ++d) {
    choices.push_back(algorithms_for(family, decomposition.size(d), d == 0 && decomposition.ragged()));
  }
  std::vector<Algorithm> chosen(choices.size());
  const auto choose = [&](const auto& self, std::size_t d) -> void {
    if (d == choices.size()) {
      shapes.push_back({grid.order, decomposition, chosen});
      return;
    }
    for (const Algorithm algorithm : choices[d]) {
      chosen[d] = algorithm;
      self(self, d + 1);
    }
  };
  choose(choose, 0);
}

Grid grid_of(std::size_t order, const std::vector<int>& factors) {
  if (factors.empty()) return {order, {1}, {}};
  return {order, {factors[0]}, {factors.begin() + 1, factors.end()}};
}

/// Whether some dimensions are inside hosts of `size` ranks and the others between them.
bool is_aligned(const std::vector<int>& factors, int size) {
  int product = 1;
  for (const int factor : factors) {
    if (product == size) return true;
    product *= factor;
  }
  return product == size || size == 1;
}

std::vector<Grid> all_grids(Mode mode, int ranks, const PlanTiming& timing) {
  std::vector<Grid> grids;
  const HostRanks& hosts = timing.hosts();
  const auto factorisations = ordered_factorisations(ranks);
  const std::size_t orders = mode == Mode::nccl_per_dimension ? 1 : timing.host_order() + 1;
  if (mode == Mode::nccl) return {grid_of(timing.host_order(), {ranks})};
  for (std::size_t i = 0; i < orders; ++i) {
    const std::size_t order = mode == Mode::nccl_per_dimension ? timing.host_order() : i;
    for (const auto& factors : factorisations) {
      const bool is_wanted =
          mode != Mode::nccl_per_dimension || (hosts.equal && is_aligned(factors, hosts.sizes[0]));
      if (is_wanted) grids.push_back(grid_of(order, factors));
    }
  }
  if (!hosts.equal) {
    for (const auto& factors : ordered_factorisations(static_cast<int>(hosts.sizes.size()))) {
      grids.push_back({timing.host_order(), hosts.sizes, factors});
    }
  }
  return grids;
}

/// What MPI libraries do that don't look at the wiring: see `Mode::mpi`.
std::vector<PlanShape> mpi_shapes(Collective collective, int ranks) {
  const Decomposition flat({ranks}, {});
  std::vector<PlanShape> shapes;
  const auto add_flat = [&](Algorithm algorithm) { shapes.push_back({0, flat, {algorithm}}); };
  add_flat(Algorithm::ring);
  if (ranks < 3) {
    if (ranks == 2 && collective == Collective::all_reduce) add_flat(Algorithm::one_shot);
    return shapes;
  }
  if (collective == Collective::broadcast) {
    add_flat(Algorithm::two_shot);
    add_flat(Algorithm::tree);
    return shapes;
  }
  const auto factors = prime_factors(ranks);
  if (factors.size() > 1) {
    add_flat(Algorithm::halving_doubling);
    shapes.push_back({0, Decomposition({factors[0]}, {factors.begin() + 1, factors.end()}),
                      std::vector<Algorithm>(factors.size(), Algorithm::one_shot)});
  }
  add_flat(Algorithm::tree);
  return shapes;
}

bool has_one_algorithm(const PlanShape& shape) {
  std::set<Algorithm> used;
  for (int d = 0; d < shape.decomposition.dimensions(); ++d) {
    if (shape.decomposition.size(d) > 1) used.insert(shape.algorithms[static_cast<std::size_t>(d)]);
  }
  return used.size() <= 1;
}

std::vector<int> divisors_of(int n) {
  std::vector<int> result;
  for (int d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    result.push_back(d);
    if (d != n / d) result.push_back(n / d);
  }
  std::ranges::sort(result);
  return result;
}

/// Grows plans from the innermost dimension outwards.
class Search {
 public:
  Search(const PlanRequest& request, PlanTiming& timing)
      : request_(&request), timing_(&timing), is_large_(timing.orders()[0].ranks.size() > 4096) {}

  /// Grids of `positions` groups of the sizes `groups` (one entry: of that many), and all of them inside.
  void run(std::size_t order, const std::vector<int>& host_sizes, bool aligned) {
    const auto ranks = static_cast<int>(timing_->orders()[order].ranks.size());
    const bool is_ragged = host_sizes.size() > 1;
    const int whole = is_ragged ? static_cast<int>(host_sizes.size()) : ranks;
    std::map<int, std::vector<Partial>> partial;
    if (is_ragged) {
      for (const Algorithm algorithm : algorithms(*std::ranges::max_element(host_sizes), true)) {
        partial[1].push_back(grown({order, {}, {}, {}, 0, 0, 0}, -1, algorithm, host_sizes));
      }
    } else {
      partial[1].push_back({order, {}, {}, {}, 0, 0, 0});
    }
    for (auto& [positions, plans] : partial) {
      keep_best(plans);
      for (const Partial& plan : plans) {
        if (positions == whole) {
          shapes_.push_back(plan.shape(host_sizes));
          continue;
        }
        for (const int size : next_sizes(positions, whole, aligned ? host_sizes[0] : 1)) {
          for (const Algorithm algorithm : algorithms(size, false)) {
            // Trees in the middle leave out as many as trees at the start, but later.
            const bool is_odd_tree = algorithm == Algorithm::tree && positions * size != whole &&
                                     std::ranges::any_of(plan.algorithms, [](Algorithm inner) {
                                       return inner != Algorithm::tree;
                                     });
            if (is_odd_tree) continue;
            partial[positions * size].push_back(grown(plan, size, algorithm, host_sizes));
          }
        }
      }
    }
  }

  std::vector<PlanShape> take() { return std::move(shapes_); }

 private:
  static constexpr std::size_t most_of_each = 3;

  struct Partial {
    std::size_t order;
    std::vector<int> sizes;
    std::vector<Algorithm> algorithms;
    std::vector<ProfiledPhase> phases;
    double latency;    // us, alone
    double bandwidth;  // us of all bytes, one phase after the other
    double busiest;    // us of the busiest link

    [[nodiscard]] PlanShape shape(const std::vector<int>& host_sizes) const {
      std::vector<int> outer = sizes;
      if (host_sizes.size() > 1) return {order, Decomposition(host_sizes, std::move(outer)), algorithms};
      const int first = outer.empty() ? 1 : outer[0];
      if (!outer.empty()) outer.erase(outer.begin());
      return {order, Decomposition({first}, std::move(outer)), algorithms};
    }
  };

  [[nodiscard]] std::vector<Algorithm> algorithms(int size, bool ragged) const {
    auto result = algorithms_for({request_->collective, request_->mode}, size, ragged);
    std::erase_if(result, [&](Algorithm algorithm) {
      const int most_direct = is_large_ ? 8 : 32;
      const bool is_direct = algorithm == Algorithm::one_shot || algorithm == Algorithm::two_shot;
      const bool has_prime =
          algorithm == Algorithm::halving_doubling && prime_factors(size).back() > most_direct;
      const bool is_long = algorithm == Algorithm::halving_doubling && is_large_ && size > 64;
      return (is_direct && size > most_direct) || has_prime || is_long;
    });
    return result;
  }

  /// Sizes of a dimension after `positions`; none crosses the border of hosts but a flat one.
  static std::vector<int> next_sizes(int positions, int whole, int host_size) {
    std::vector<int> result;
    const bool is_inside = positions < host_size && host_size % positions == 0;
    const int rest = (is_inside && host_size > 1 ? host_size : whole) / positions;
    const auto divisors = divisors_of(rest);
    const double root = std::sqrt(static_cast<double>(rest));
    const int middle = *std::ranges::min_element(
        divisors, {}, [&](int d) { return std::abs(std::log(static_cast<double>(d) / root)); });
    for (const int d : divisors) {
      const bool is_wanted = d > 1 && (d <= 8 || d == rest || d == middle || whole <= 1024);
      if (is_wanted) result.push_back(d);
    }
    if (positions == 1 && rest != whole) result.push_back(whole);
    return result;
  }

  /// One more dimension; of size -1: the ragged first one.
  Partial grown(const Partial& plan, int size, Algorithm algorithm, const std::vector<int>& host_sizes) {
    Partial result = plan;
    if (size > 0) result.sizes.push_back(size);
    result.algorithms.push_back(algorithm);
    // The rest of the grid is one more dimension: what is inside does not depend on it.
    const bool is_ragged = host_sizes.size() > 1;
    const auto whole =
        static_cast<int>(is_ragged ? host_sizes.size() : timing_->orders()[plan.order].ranks.size());
    std::vector<int> outer = result.sizes;
    outer.push_back(whole / std::accumulate(outer.begin(), outer.end(), 1, std::multiplies<>{}));
    PlanShape shape{plan.order, {}, result.algorithms};
    shape.decomposition = is_ragged ? Decomposition(host_sizes, outer)
                                    : Decomposition({outer[0]}, {outer.begin() + 1, outer.end()});
    result.phases = timing_->phases_so_far(request_->collective, shape);
    result.latency = result.bandwidth = 0;
    const auto bytes = static_cast<double>(request_->bytes);
    for (const ProfiledPhase& phase : result.phases) {
      const double alone = phase_time(phase, 0, timing_->step_overhead());
      result.latency += alone;
      result.bandwidth += phase_time(phase, bytes, timing_->step_overhead()) - alone;
    }
    result.busiest = timing_->busiest_resource(result.phases).us_per_byte * bytes;
    return result;
  }

  static void keep_best(std::vector<Partial>& plans) {
    std::set<std::size_t> kept;
    std::vector<std::size_t> by(plans.size());
    std::iota(by.begin(), by.end(), std::size_t{0});
    const auto keep_by = [&](auto cost) {
      std::ranges::stable_sort(by, {}, [&](std::size_t i) { return static_cast<float>(cost(plans[i])); });
      for (std::size_t i = 0; i < std::min(by.size(), most_of_each); ++i) kept.insert(by[i]);
    };
    keep_by([](const Partial& plan) { return plan.latency; });
    for (const double chunks : {1.0, 4.0, 16.0, 64.0}) {
      keep_by([&](const Partial& plan) {
        return std::max(plan.latency + plan.bandwidth / chunks, plan.busiest) +
               std::min(plan.latency + plan.bandwidth / chunks, plan.busiest) * (chunks > 1 ? 1 : 0);
      });
    }
    std::vector<Partial> result;
    for (const std::size_t i : kept) result.push_back(std::move(plans[i]));
    plans = std::move(result);
  }

  const PlanRequest* request_;
  PlanTiming* timing_;
  bool is_large_;  // so that a look at all messages of a phase takes long
  std::vector<PlanShape> shapes_;
};

}  // namespace

std::vector<PlanShape> find_shapes(const PlanRequest& request, int ranks, PlanTiming& timing) {
  const Family family{request.collective, request.mode};
  std::vector<PlanShape> shapes;
  if (request.decomposition) {
    const Decomposition& wanted = *request.decomposition;
    std::vector<int> groups;
    for (int group = 0; group < (wanted.ragged() ? wanted.groups() : 1); ++group) {
      groups.push_back(wanted.group_size(group));
    }
    const bool knows_hosts = request.mode == Mode::nccl || request.mode == Mode::nccl_per_dimension;
    const std::size_t last = request.mode == Mode::mpi ? 0 : timing.host_order();
    for (std::size_t order = knows_hosts ? last : 0; order <= last; ++order) {
      add_with_algorithms(family, {order, groups, {wanted.outer().begin(), wanted.outer().end()}}, shapes);
    }
    if (request.mode == Mode::mpi) {
      std::erase_if(shapes, [](const PlanShape& shape) { return !has_one_algorithm(shape); });
    }
    return shapes;
  }
  if (request.mode == Mode::mpi) return mpi_shapes(request.collective, ranks);
  if (ranks <= most_ranks_for_all || request.mode == Mode::nccl) {
    for (const Grid& grid : all_grids(request.mode, ranks, timing)) add_with_algorithms(family, grid, shapes);
    return shapes;
  }
  Search search(request, timing);
  const HostRanks& hosts = timing.hosts();
  const std::vector<int> one_size = {hosts.sizes[0]};
  search.run(timing.host_order(), one_size, hosts.equal);
  if (!hosts.equal) search.run(timing.host_order(), hosts.sizes, false);
  if (timing.host_order() != 0 && request.mode != Mode::nccl_per_dimension) {
    if (hosts.contiguous) {
      search.run(0, one_size, hosts.equal);
    } else {
      add_with_algorithms({request.collective, Mode::rings}, {0, {ranks}, {}}, shapes);
    }
  }
  for (PlanShape& shape : search.take()) shapes.push_back(std::move(shape));
  if (request.mode == Mode::nccl_per_dimension) {
    std::erase_if(shapes, [&](const PlanShape& shape) {
      for (int d = 0, inside = 1; d < shape.decomposition.dimensions(); ++d) {
        inside *= shape.decomposition.size(d);
        if (shape.decomposition.ragged() || inside == hosts.sizes[0]) return false;
      }
      return hosts.sizes[0] != 1;
    });
  }
  return shapes;
}

}  // namespace ddl::topology
