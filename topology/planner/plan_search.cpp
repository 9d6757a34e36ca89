#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "topology/plan/algorithms.hpp"
#include "topology/planner/plan_shape.hpp"
#include "topology/planner/plan_timing.hpp"

namespace ddl::topology {
namespace {

/// Most rounds that a search times one by one.
constexpr int coarse_rounds = 48;
/// Of a requested decomposition; with more, it is searched.
constexpr double most_algorithm_choices = 1000;

/// Adds a shape for every choice of algorithms.
void add_with_algorithms(Collective collective, Mode mode, std::size_t order,
                         const Decomposition& decomposition, std::vector<PlanShape>& shapes) {
  std::vector<std::vector<Algorithm>> choices;
  for (int d = 0; d < decomposition.dimensions(); ++d) {
    choices.push_back(
        algorithms_for(collective, mode, decomposition.size(d), d == 0 && decomposition.ragged()));
  }
  std::vector<Algorithm> chosen(choices.size());
  const auto choose = [&](const auto& self, std::size_t d) -> void {
    if (d == choices.size()) return shapes.push_back({order, decomposition, chosen});
    for (const Algorithm algorithm : choices[d]) {
      chosen[d] = algorithm;
      self(self, d + 1);
    }
  };
  choose(choose, 0);
}

std::vector<PlanShape> all_shapes(const PlanRequest& request, int ranks, const PlanTiming& timing) {
  std::vector<PlanShape> shapes;
  const auto add = [&](std::size_t order, const Decomposition& decomposition) {
    add_with_algorithms(request.collective, request.mode, order, decomposition, shapes);
  };
  const std::size_t by_host = timing.host_order();
  if (request.mode == Mode::nccl) {
    add(by_host, grid_of({ranks}));
    return shapes;
  }
  const HostRanks& hosts = timing.hosts();
  const bool is_along_hosts = request.mode == Mode::nccl_per_dimension;
  for (std::size_t order = is_along_hosts ? by_host : 0; order <= by_host; ++order) {
    for (const auto& factors : ordered_factorisations(ranks)) {
      const Decomposition grid = grid_of(factors);
      if (!is_along_hosts || (hosts.equal && is_aligned(grid, hosts.sizes[0]))) add(order, grid);
    }
  }
  if (!hosts.equal) {
    for (const auto& factors : ordered_factorisations(static_cast<int>(hosts.sizes.size()))) {
      add(by_host, Decomposition(hosts.sizes, factors));
    }
  }
  return shapes;
}

bool has_one_algorithm(const PlanShape& shape) {
  std::set<Algorithm> used;
  for (int d = 0; d < shape.decomposition.dimensions(); ++d) {
    if (shape.decomposition.size(d) > 1) used.insert(shape.algorithms[as_index(d)]);
  }
  return used.size() <= 1;
}

bool leaves_one(Algorithm algorithm) { return traits_of(algorithm).leaves_one; }

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

/// Plans with equal keys have equal steps. Size -1: the ragged first dimension.
using StepsKey = std::vector<SizedAlgorithm>;
StepsKey key_of(const std::vector<int>& sizes, const std::vector<Algorithm>& algorithms) {
  StepsKey key;
  const std::size_t ragged = algorithms.size() - sizes.size();
  for (std::size_t i = 0; i < algorithms.size(); ++i) {
    if (i < ragged) {
      key.push_back({-1, algorithms[i]});
    } else {
      add_same_steps(algorithms[i], sizes[i - ragged], key);
    }
  }
  return key;
}

/// Grows plans from the innermost dimension outwards. A partial plan is rated by the predicted times of its
/// completions, with chunks in flight together, because the sum of its own phases' times says little.
class Search {
 public:
  Search(const PlanRequest& request, PlanTiming& timing)
      : request_(&request),
        timing_(&timing),
        ranks_(static_cast<int>(timing.orders()[0].ranks.size())),
        is_large_(ranks_ > 1024) {}

  /// Searches grids of groups with the sizes `inner`. A single size is the size of a host if `aligned`; other
  /// group sizes are tried too. `wanted`: only dimensions of these sizes.
  void run(std::size_t order, const std::vector<int>& inner, bool aligned,
           const std::vector<int>& wanted = {}) {
    order_ = order;
    inner_ = &inner;
    wanted_ = &wanted;
    host_size_ = aligned ? inner[0] : 1;
    is_ragged_ = inner.size() > 1;
    whole_ = is_ragged_ ? static_cast<int>(inner.size()) : ranks_;
    seen_.clear();
    // By the number of positions; with `wanted`, which may contain 1, by the number of dimensions.
    std::map<int, std::vector<Partial>> partial;
    auto& first = partial[wanted.empty() ? 1 : 0];
    if (is_ragged_) {
      for (const Algorithm algorithm : algorithms(*std::ranges::max_element(inner), true)) {
        first.push_back({{}, {algorithm}, {}});
      }
    } else {
      first.push_back({});
    }
    for (auto& [key, plans] : partial) {
      keep_best(plans);
      for (const Partial& plan : plans) {
        const int positions = std::accumulate(plan.sizes.begin(), plan.sizes.end(), 1, std::multiplies<>{});
        if (is_whole(plan, positions)) break;
        for (const int size : next_sizes(plan, positions)) {
          for (const Algorithm algorithm : algorithms(size, false)) {
            // A tree in a middle dimension leaves out as many ranks as an early one, but later.
            const bool is_inner_tree = leaves_one(algorithm) && positions * size != whole_ && wanted.empty();
            const bool is_odd_tree = is_inner_tree && !std::ranges::all_of(plan.algorithms, leaves_one);
            // Every tree has members of its own, and profiling many of them takes long.
            const bool is_late_tree = is_inner_tree && is_large_ && positions * size > host_size_;
            if (is_odd_tree || is_late_tree) continue;
            Partial grown{plan.sizes, plan.algorithms, {}};
            grown.sizes.push_back(size);
            grown.algorithms.push_back(algorithm);
            complete(grown, positions * size);
            partial[wanted.empty() ? positions * size : key + 1].push_back(std::move(grown));
          }
        }
      }
    }
  }

  /// The best shapes of all runs.
  std::vector<PlanShape> take() {
    std::ranges::stable_sort(finished_, {}, [](const Finished& plan) {
      return std::pair(static_cast<float>(plan.us), plan.shape.algorithms.size());
    });
    std::vector<PlanShape> result;
    for (Finished& plan : finished_) {
      if (result.size() == most_finished) break;
      result.push_back(std::move(plan.shape));
    }
    return result;
  }

 private:
  static constexpr std::size_t most_finished = 60;

  struct Partial {
    std::vector<int> sizes;  // without a ragged first dimension's
    std::vector<Algorithm> algorithms;
    std::vector<double> us;  // by completion
  };
  struct Finished {
    double us;
    PlanShape shape;
  };

  [[nodiscard]] bool is_whole(const Partial& plan, int positions) const {
    return wanted_->empty() ? positions == whole_ : plan.sizes.size() == wanted_->size();
  }

  [[nodiscard]] std::vector<Algorithm> algorithms(int size, bool ragged) const {
    auto result = algorithms_for(request_->collective, request_->mode, size, ragged);
    const bool is_prime = prime_factors(size).size() == 1;
    if (!wanted_->empty() || (is_prime && result.size() == 1)) return result;
    const int largest = prime_factors(size).back();
    const int most_direct = is_large_ ? 8 : 32;
    // A prime size has no other way to take few steps.
    const auto is_quick = [&](int members) { return std::int64_t{members} * ranks_ <= 1 << 19; };
    std::erase_if(result, [&](Algorithm algorithm) {
      const AlgorithmTraits& traits = traits_of(algorithm);
      if (traits.is_direct) return size > most_direct && !(is_prime && is_quick(size));
      if (traits.is_staged) return largest > most_direct && !is_quick(largest);
      return traits.is_ring && has_root(request_->collective) && size > longest_chain;
    });
    return result;
  }

  /// Sizes to try for the dimension after `positions`. Only a flat one crosses the border between hosts.
  [[nodiscard]] std::vector<int> next_sizes(const Partial& plan, int positions) const {
    if (!wanted_->empty()) return {(*wanted_)[plan.sizes.size()]};
    std::vector<int> result;
    const bool is_inside = positions < host_size_ && host_size_ % positions == 0;
    const int rest = (is_inside && host_size_ > 1 ? host_size_ : whole_) / positions;
    const auto divisors = divisors_of(rest);
    const double root = std::sqrt(static_cast<double>(rest));
    const int middle = *std::ranges::min_element(
        divisors, {}, [&](int d) { return std::abs(std::log(static_cast<double>(d) / root)); });
    for (const int d : divisors) {
      // Halving and doubling also covers dimensions of two.
      const bool is_small = d <= 8 && (!is_large_ || d > 2 || rest <= 8);
      const bool is_prime = d > 8 && prime_factors(d).size() == 1;
      const bool is_wanted = is_small || is_prime || d == rest || d == middle || whole_ <= 1024;
      if (d > 1 && is_wanted) result.push_back(d);
    }
    if (positions == 1 && rest != whole_) result.push_back(whole_);
    return result;
  }

  /// The remaining sizes: as wanted; or the rest of the host, then all hosts; or the primes of these.
  [[nodiscard]] std::vector<int> rest_of(const Partial& plan, int positions, bool in_primes) const {
    if (!wanted_->empty()) {
      return {wanted_->begin() + static_cast<std::ptrdiff_t>(plan.sizes.size()), wanted_->end()};
    }
    std::vector<int> rest;
    if (positions < host_size_ && host_size_ % positions == 0) {
      rest.push_back(host_size_ / positions);
      positions = host_size_;
    }
    if (positions < whole_) rest.push_back(whole_ / positions);
    if (!in_primes) return rest;
    std::vector<int> primes;
    for (const int size : rest) {
      const auto factors = prime_factors(size);
      primes.insert(primes.end(), factors.begin(), factors.end());
    }
    return primes;
  }

  /// Times a plan with its remaining dimensions done by each algorithm in turn.
  void complete(Partial& plan, int positions) {
    if (is_whole(plan, positions)) return plan.us.push_back(time(plan));
    for (const Algorithm algorithm : all_algorithms()) {
      const AlgorithmTraits& traits = traits_of(algorithm);
      Partial whole{plan.sizes, plan.algorithms, {}};
      bool is_possible = !traits.is_tree || !is_large_ || !wanted_->empty() || positions == host_size_;
      for (const int size : rest_of(plan, positions, traits.is_direct)) {
        const auto possible = algorithms(size, false);
        const bool has = std::ranges::find(possible, algorithm) != possible.end();
        is_possible &= !possible.empty();
        if (!is_possible) break;
        whole.sizes.push_back(size);
        whole.algorithms.push_back(has ? algorithm : possible.front());
      }
      plan.us.push_back(is_possible ? time(whole) : std::numeric_limits<double>::infinity());
    }
  }

  /// The least time over all chunk counts; also records the shape.
  double time(const Partial& plan) {
    const auto key = key_of(plan.sizes, plan.algorithms);
    const auto [entry, is_new] = seen_.try_emplace(key, 0);
    if (!is_new) return entry->second;
    PlanShape shape{order_, is_ragged_ ? Decomposition(*inner_, plan.sizes) : grid_of(plan.sizes),
                    plan.algorithms};
    const auto bytes = static_cast<double>(request_->bytes);
    PipelineTime& pipeline = timing_->pipeline(timing_->phases(request_->collective, shape));
    double best = std::numeric_limits<double>::infinity();
    for (const int chunks : {1, 4, 16, 64}) {
      const int count = request_->chunks.value_or(chunks);
      if (pipeline.least(bytes, count) < best)
        best = std::min(best, pipeline.of(bytes, count, coarse_rounds));
      if (request_->chunks) break;
    }
    entry->second = best;
    finished_.push_back({best, std::move(shape)});
    return best;
  }

  /// Keeps the best few for each completion, and all plans of one dimension, from which simple plans grow.
  void keep_best(std::vector<Partial>& plans) {
    std::size_t completions = 0;
    for (const Partial& plan : plans) completions = std::max(completions, plan.us.size());
    std::set<std::size_t> kept;
    for (std::size_t i = 0; i < plans.size(); ++i) {
      if (plans[i].algorithms.size() < 2) kept.insert(i);
    }
    std::vector<std::size_t> by(plans.size());
    for (std::size_t completion = 0; completion < completions; ++completion) {
      std::iota(by.begin(), by.end(), std::size_t{0});
      const auto us = [&](std::size_t i) {
        return completion < plans[i].us.size() ? plans[i].us[completion]
                                               : std::numeric_limits<double>::infinity();
      };
      std::ranges::stable_sort(by, {}, [&](std::size_t i) {
        return std::pair(static_cast<float>(us(i)), plans[i].algorithms.size());
      });
      std::set<StepsKey> keys;
      for (const std::size_t i : by) {
        if (keys.size() == (is_large_ ? 1 : 3) || (std::isinf(us(i)) && !kept.empty())) break;
        if (keys.insert(key_of(plans[i].sizes, plans[i].algorithms)).second) kept.insert(i);
      }
    }
    std::vector<Partial> result;
    for (const std::size_t i : kept) result.push_back(std::move(plans[i]));
    plans = std::move(result);
  }

  const PlanRequest* request_;
  PlanTiming* timing_;
  int ranks_;
  bool is_large_;  // profiling all messages of a phase takes long
  std::size_t order_ = 0;
  const std::vector<int>* inner_ = nullptr;
  const std::vector<int>* wanted_ = nullptr;
  int host_size_ = 1;
  bool is_ragged_ = false;
  int whole_ = 1;
  std::map<StepsKey, double> seen_;
  std::vector<Finished> finished_;
};

/// The shapes that a mode allows, found by searches.
std::vector<PlanShape> search_shapes(const PlanRequest& request, PlanTiming& timing) {
  Search search(request, timing);
  const HostRanks& hosts = timing.hosts();
  const std::vector<int> one_size = {hosts.sizes[0]};
  const bool is_along_hosts = request.mode == Mode::nccl_per_dimension;
  if (hosts.equal || !is_along_hosts) search.run(timing.host_order(), one_size, hosts.equal);
  if (!hosts.equal) search.run(timing.host_order(), hosts.sizes, false);
  if (timing.host_order() != 0 && !is_along_hosts && hosts.contiguous) search.run(0, one_size, hosts.equal);
  return search.take();
}

/// Shapes with several rings in each host.
std::vector<PlanShape> shapes_with_rings(const PlanRequest& request, const PlanTiming& timing) {
  std::vector<PlanShape> shapes;
  const HostRanks& hosts = timing.hosts();
  const int count = static_cast<int>(hosts.sizes.size());
  if (!timing.rings_order() || request.mode == Mode::mpi || (request.mode == Mode::nccl && count > 1))
    return {};
  std::vector<std::vector<int>> outer = {{count}};
  if (count <= most_ranks_for_all) outer = ordered_factorisations(count);
  for (const std::vector<int>& sizes : outer) {
    const Decomposition grid =
        hosts.equal ? Decomposition({hosts.sizes[0]}, sizes) : Decomposition(hosts.sizes, sizes);
    if (request.decomposition && grid != *request.decomposition) continue;
    add_with_algorithms(request.collective, request.mode, *timing.rings_order(), grid, shapes);
  }
  std::erase_if(shapes, [](const PlanShape& shape) { return !traits_of(shape.algorithms.front()).is_ring; });
  return shapes;
}

/// Shapes with one order of ranks.
std::vector<PlanShape> shapes_of_one_order(const PlanRequest& request, int ranks, PlanTiming& timing) {
  std::vector<PlanShape> shapes;
  if (request.decomposition) {
    const Decomposition& wanted = *request.decomposition;
    const bool knows_hosts = request.mode == Mode::nccl || request.mode == Mode::nccl_per_dimension;
    const std::size_t last = request.mode == Mode::mpi ? 0 : timing.host_order();
    double choices = 1;
    for (int d = 0; d < wanted.dimensions(); ++d) {
      const bool is_ragged = d == 0 && wanted.ragged();
      choices *= static_cast<double>(
          algorithms_for(request.collective, request.mode, wanted.size(d), is_ragged).size());
    }
    if (choices > most_algorithm_choices && request.mode != Mode::mpi) {
      const std::vector<int> groups(wanted.group_sizes().begin(), wanted.group_sizes().end());
      std::vector<int> sizes(wanted.outer().begin(), wanted.outer().end());
      if (!wanted.ragged()) sizes.insert(sizes.begin(), groups[0]);
      Search search(request, timing);
      for (std::size_t order = knows_hosts ? last : 0; order <= last; ++order) {
        search.run(order, groups, false, sizes);
      }
      return search.take();
    }
    for (std::size_t order = knows_hosts ? last : 0; order <= last; ++order) {
      add_with_algorithms(request.collective, request.mode, order, wanted, shapes);
    }
    if (request.mode == Mode::mpi) {
      std::erase_if(shapes, [](const PlanShape& shape) { return !has_one_algorithm(shape); });
    }
    return shapes;
  }
  if (request.mode == Mode::mpi) return mpi_shapes(request.collective, ranks);
  if (ranks <= most_ranks_for_all || request.mode == Mode::nccl) return all_shapes(request, ranks, timing);
  shapes = search_shapes(request, timing);
  const auto add = [&](std::vector<PlanShape> more) {
    for (PlanShape& shape : more) {
      if (std::ranges::find(shapes, shape) == shapes.end()) shapes.push_back(std::move(shape));
    }
  };
  const bool is_long_chain = has_root(request.collective) && ranks > longest_chain;
  if (timing.host_order() != 0 && !timing.hosts().contiguous && !is_long_chain &&
      request.mode != Mode::nccl_per_dimension) {
    std::vector<PlanShape> ring;
    add_with_algorithms(request.collective, Mode::rings, 0, grid_of({ranks}), ring);
    add(std::move(ring));
  }
  if (request.mode == Mode::explore) {
    // A search may miss what a narrower one finds.
    for (const Mode mode : {Mode::rings, Mode::scatter_gather}) {
      PlanRequest narrower = request;
      narrower.mode = mode;
      add(shapes_of_one_order(narrower, ranks, timing));
    }
    add(mpi_shapes(request.collective, ranks));
  }
  const HostRanks& hosts = timing.hosts();
  if (request.mode == Mode::nccl_per_dimension) {
    std::erase_if(shapes, [&](const PlanShape& shape) {
      return !shape.decomposition.ragged() && !is_aligned(shape.decomposition, hosts.sizes[0]);
    });
  }
  return shapes;
}

}  // namespace

std::vector<PlanShape> find_shapes(const PlanRequest& request, int ranks, PlanTiming& timing) {
  std::vector<PlanShape> shapes = shapes_of_one_order(request, ranks, timing);
  std::ranges::move(shapes_with_rings(request, timing), std::back_inserter(shapes));
  return shapes;
}

}  // namespace ddl::topology
