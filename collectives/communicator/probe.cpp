#include "collectives/communicator/probe.hpp"

#include <algorithm>

namespace ddl::collectives {

using topology::Measurement;
using topology::Program;
using topology::StepKind;
using topology::Topology;
using topology::WayKind;

namespace {

constexpr std::size_t small_bytes = 8;
constexpr std::size_t large_bytes = std::size_t{4} << 20;
constexpr int round_trips = 50;
constexpr int large_messages = 4;
constexpr int repeats = 10;
// Around rings of hosts: as much as a 16 MiB all-reduce sends with 4 ranks per host.
constexpr std::size_t ring_bytes = std::size_t{2} << 20;
constexpr int ring_messages = 3;
constexpr std::size_t most_bytes = 2 * ring_messages * ring_bytes;

/// Ways that are measured at the same time.
struct MeasuredWays {
  std::vector<std::pair<int, int>> pairs;  ///< The first pair represents the way.
  std::vector<std::vector<int>> rings;     ///< Between hosts: each has one rank of each host.
};

/// The package through which a rank reaches the rest of its host; -1 if there is none.
int package_of(const Topology& topology, int rank) {
  const int node = topology.node_of_device(rank);
  for (const int link : topology.links_at(node)) {
    const int other = topology.other_end(link, node);
    if (topology.node(other).kind == topology::NodeKind::package) return other;
  }
  return -1;
}

std::vector<std::pair<int, int>> side_by_side(const std::vector<int>& left, const std::vector<int>& right) {
  std::vector<std::pair<int, int>> pairs;
  for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i) pairs.emplace_back(left[i], right[i]);
  return pairs;
}

/// All hosts at once, because ranks share cores and links in collectives, too.
MeasuredWays between(const std::map<int, std::vector<int>>& of_host) {
  MeasuredWays ways;
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (const auto& [host, members] : of_host) least = std::min(least, members.size());
  ways.rings.resize(least);
  for (const auto& [host, members] : of_host) {
    for (std::size_t i = 0; i < least; ++i) ways.rings[i].push_back(members[i]);
  }
  for (const std::vector<int>& ring : ways.rings) {
    for (std::size_t i = 0; i + 1 < ring.size(); i += 2) ways.pairs.emplace_back(ring[i], ring[i + 1]);
  }
  return ways;
}

/// The ways between ranks, by kind; the same on all ranks.
std::map<WayKind, MeasuredWays> ways_between(const Topology& topology, int ranks) {
  std::map<int, std::vector<int>> of_host;
  for (int rank = 0; rank < ranks; ++rank) {
    of_host[topology.node(topology.node_of_device(rank)).host].push_back(rank);
  }
  const auto kind = [&](int a, int b) {
    return way_between(topology, topology.node_of_device(a), topology.node_of_device(b));
  };
  std::map<WayKind, MeasuredWays> found;
  for (const auto& [host, members] : of_host) {
    std::map<int, std::vector<int>> of_package;
    for (const int rank : members) of_package[package_of(topology, rank)].push_back(rank);
    for (const int other : std::span(members).subspan(1)) {
      const int first = members.front();
      const WayKind way = kind(first, other);
      if (found.contains(way)) continue;
      if (way == WayKind::between_packages) {
        found[way].pairs =
            side_by_side(of_package[package_of(topology, first)], of_package[package_of(topology, other)]);
      } else if (way == WayKind::inside_package) {
        found[way].pairs = {{first, other}};
      }
    }
  }
  if (of_host.size() > 1) found[WayKind::between_hosts] = between(of_host);
  return found;
}

topology::Step message(bool sends, int peer, std::size_t begin, std::size_t bytes) {
  return {
      .kind = sends ? StepKind::send : StepKind::receive, .peer = peer, .begin = begin, .end = begin + bytes};
}

/// `round_trips` small messages back and forth.
Program ping_pong(bool begins, int peer) {
  Program program;
  for (int i = 0; i < round_trips; ++i) {
    for (const bool sends : {begins, !begins}) program.steps.push_back(message(sends, peer, 0, small_bytes));
  }
  return program;
}

/// Large messages in one direction, then a small one back.
Program stream(bool sends, int peer) {
  Program program;
  program.steps.assign(large_messages, message(sends, peer, 0, large_bytes));
  program.steps.push_back(message(!sends, peer, 0, small_bytes));
  return program;
}

/// Large messages to the next rank of a ring, and from the previous one.
Program around(int next, int previous) {
  Program program;
  for (std::size_t i = 0; i < ring_messages; ++i) {
    program.steps.push_back(message(true, next, i * ring_bytes, ring_bytes));
    program.steps.push_back(message(false, previous, (ring_messages + i) * ring_bytes, ring_bytes));
  }
  return program;
}

/// Shared with the ranks of the host, if there are any, as trainers' buffers should be.
std::shared_ptr<void> probed_memory(const Engine& engine) {
  std::shared_ptr<void> memory = engine.allocate(most_bytes);
  if (!memory) memory = process_memory(most_bytes);
  if (!memory) throw std::bad_alloc();
  return memory;
}

class Prober {
 public:
  Prober(CommunicatorImpl& communicator, const topology::CostModel& cost)
      : communicator_(communicator), cost_(cost), data_(probed_memory(communicator.job().engine())) {}

  Measurement measure(WayKind kind, const MeasuredWays& ways) {
    const auto [from, to] = ways.pairs.front();
    Measurement result{kind, from, to};
    const bool is_network = !ways.rings.empty();
    const std::span pairs(ways.pairs);
    const double round = is_network ? quantile(run_pairs(pairs, ping_pong), 0.25)
                                    : std::ranges::min(run_pairs(pairs.first(1), ping_pong));
    result.latency = std::max(0.0, round * 1e6 / (2 * round_trips) - cost_.step_overhead);
    result.latency = std::min(result.latency, Topology::highest_latency);
    // Other load on the machine only slows runs down, so the best rate is that of the links.
    const double slowest = std::ranges::min(is_network ? run_rings(ways.rings) : run_pairs(pairs, stream));
    const double bytes = is_network ? static_cast<double>(ways.rings.size()) * ring_messages * ring_bytes
                                    : static_cast<double>(ways.pairs.size()) * large_messages * large_bytes;
    result.bandwidth = std::min(bytes / std::max(slowest, 1e-9) / 1e9, Topology::highest_bandwidth);
    return result;
  }

 private:
  using Times = std::vector<double>;

  static double quantile(Times times, double part) {
    const auto at = times.begin() + static_cast<std::ptrdiff_t>(static_cast<double>(times.size()) * part);
    std::ranges::nth_element(times, at);
    return *at;
  }

  template <typename MakeProgram>
  Times run_pairs(std::span<const std::pair<int, int>> pairs, MakeProgram make_program) {
    const int rank = communicator_.rank();
    for (const auto& [from, to] : pairs) {
      if (rank == from) return run(make_program(true, to), true);
      if (rank == to) return run(make_program(false, from), false);
    }
    return run({}, false);
  }

  Times run_rings(const std::vector<std::vector<int>>& rings) {
    for (const std::vector<int>& ring : rings) {
      const auto own = std::ranges::find(ring, communicator_.rank());
      if (own == ring.end()) continue;
      const auto at = as_index(own - ring.begin());
      return run(around(ring[(at + 1) % ring.size()], ring[(at + ring.size() - 1) % ring.size()]), true);
    }
    return run({}, false);
  }

  /// The seconds of each of several runs, on the slowest rank that `counts`: a faster rank may have had more
  /// than its share of the links.
  Times run(topology::Program steps, bool counts) {
    std::shared_ptr<const PreparedProgram> program;
    if (!steps.steps.empty()) program = communicator_.prepare(std::move(steps), most_bytes, 1);
    Times times;
    for (int i = 0; i < repeats; ++i) {
      communicator_.run(barrier_request());
      const Clock::time_point start = Clock::now();
      communicator_.run("probe", program, data_.get(), most_bytes, DataType::u8, ReduceOp::sum);
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      times.push_back(greatest(counts ? seconds : 0));
    }
    return times;
  }

  double greatest(double own) {
    const auto program = communicator_.prepare(
        topology::lower_barrier(communicator_.size(), communicator_.rank()), 1, sizeof own);
    communicator_.run("probe", program, &own, 1, DataType::f64, ReduceOp::max);
    return own;
  }

  CommunicatorImpl& communicator_;
  topology::CostModel cost_;
  std::shared_ptr<void> data_;
};

}  // namespace

std::vector<Measurement> probe(CommunicatorImpl& communicator, const Topology& topology,
                               const topology::CostModel& cost) {
  Prober prober(communicator, cost);
  std::vector<Measurement> result;
  for (const auto& [kind, ways] : ways_between(topology, communicator.size())) {
    result.push_back(prober.measure(kind, ways));
  }
  return result;
}

}  // namespace ddl::collectives
