#include "collectives/probe.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "collectives/communicator/plan_comparison.hpp"

namespace ddl::collectives {

using topology::Measurement;
using topology::NodeKind;
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

/// Pairs of ranks that are measured together; the first stands for all.
struct MeasuredWays {
  WayKind kind;
  std::vector<std::pair<int, int>> pairs;
};

int node_of(const Topology& topology, int rank) { return topology.devices()[static_cast<std::size_t>(rank)]; }

/// The package that a rank's way to the rest of its host begins at; -1 if it has none.
int package_of(const Topology& topology, int rank) {
  const int node = node_of(topology, rank);
  for (const int link : topology.links_at(node)) {
    const int other = topology.other_end(link, node);
    if (topology.nodes()[static_cast<std::size_t>(other)].kind == NodeKind::package) return other;
  }
  return -1;
}

std::vector<std::pair<int, int>> side_by_side(const std::vector<int>& left, const std::vector<int>& right) {
  std::vector<std::pair<int, int>> pairs;
  for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i) pairs.emplace_back(left[i], right[i]);
  return pairs;
}

/// Kinds of ways between ranks; the same on all ranks.
std::vector<MeasuredWays> ways_between(const Topology& topology, int ranks) {
  std::map<int, std::vector<int>> of_host;
  for (int rank = 0; rank < ranks; ++rank) {
    of_host[topology.nodes()[static_cast<std::size_t>(node_of(topology, rank))].host].push_back(rank);
  }
  const auto kind = [&](int a, int b) {
    return way_between(topology, node_of(topology, a), node_of(topology, b));
  };
  std::optional<MeasuredWays> inside;
  std::optional<MeasuredWays> packages;
  for (const auto& [host, members] : of_host) {
    std::map<int, std::vector<int>> of_package;
    for (const int rank : members) of_package[package_of(topology, rank)].push_back(rank);
    for (const int other : std::span(members).subspan(1)) {
      const int first = members.front();
      if (kind(first, other) == WayKind::between_packages) {
        if (!packages) {
          packages = MeasuredWays{
              WayKind::between_packages,
              side_by_side(of_package[package_of(topology, first)], of_package[package_of(topology, other)])};
        }
      } else if (!inside && kind(first, other) == WayKind::inside_package) {
        inside = MeasuredWays{WayKind::inside_package, {{first, other}}};
      }
    }
    if (inside && packages) break;
  }
  std::vector<MeasuredWays> result;
  for (std::optional<MeasuredWays>& ways : {std::ref(inside), std::ref(packages)}) {
    if (ways) result.push_back(std::move(*ways));
  }
  if (of_host.size() > 1) {
    const auto second = std::next(of_host.begin());
    result.push_back({WayKind::between_hosts, side_by_side(of_host.begin()->second, second->second)});
  }
  return result;
}

/// `times` messages there and back, one after the other.
Program ping_pong(bool begins, int peer) {
  Program program;
  for (int i = 0; i < round_trips; ++i) {
    for (const bool sends : {begins, !begins}) {
      program.steps.push_back(
          {.kind = sends ? StepKind::send : StepKind::receive, .peer = peer, .begin = 0, .end = small_bytes});
    }
  }
  return program;
}

/// Large messages one way, and a small one back when the last has come.
Program stream(bool sends, int peer) {
  Program program;
  for (int i = 0; i < large_messages; ++i) {
    program.steps.push_back(
        {.kind = sends ? StepKind::send : StepKind::receive, .peer = peer, .begin = 0, .end = large_bytes});
  }
  program.steps.push_back(
      {.kind = sends ? StepKind::receive : StepKind::send, .peer = peer, .begin = 0, .end = small_bytes});
  return program;
}

/// As trainers' memory should be: shared with the ranks of the host, if there are any.
class ProbedMemory {
 public:
  explicit ProbedMemory(Engine& engine) : engine_(engine) {
    if (engine_.memory() != nullptr) shared_ = engine_.memory()->allocate(engine_.member(), large_bytes);
    if (shared_ == nullptr) own_.resize(large_bytes);
  }
  ProbedMemory(const ProbedMemory&) = delete;
  ProbedMemory& operator=(const ProbedMemory&) = delete;
  ~ProbedMemory() {
    if (shared_ != nullptr) engine_.memory()->release(engine_.member(), shared_);
  }

  void* data() noexcept { return shared_ != nullptr ? shared_ : own_.data(); }

 private:
  Engine& engine_;
  void* shared_ = nullptr;
  std::vector<std::uint8_t> own_;
};

class Prober {
 public:
  Prober(CommunicatorImpl& communicator, const topology::CostModel& cost)
      : communicator_(communicator), cost_(cost), data_(communicator.job().engine()) {}

  Measurement measure(const MeasuredWays& ways) {
    const auto [from, to] = ways.pairs.front();
    Measurement result{ways.kind, from, to};
    const double round = measured(std::span(ways.pairs).first(1), ping_pong);
    result.latency = std::max(0.0, round * 1e6 / (2 * round_trips) - cost_.step_overhead);
    result.latency = std::min(result.latency, Topology::highest_latency);
    const double slowest = measured(ways.pairs, stream);
    const double bytes = static_cast<double>(ways.pairs.size()) * large_messages * large_bytes;
    result.bandwidth = std::min(bytes / std::max(slowest, 1e-9) / 1e9, Topology::highest_bandwidth);
    return result;
  }

 private:
  /// Seconds of the fastest of several runs. A run takes as long as its slowest pair: each pair's own best
  /// would be one in which it got more than its share.
  template <typename MakeProgram>
  double measured(std::span<const std::pair<int, int>> pairs, MakeProgram make_program) {
    const int rank = communicator_.rank();
    std::shared_ptr<const PreparedProgram> program;
    bool begins = false;
    for (const auto& [from, to] : pairs) {
      if (rank == from || rank == to) {
        begins = rank == from;
        program = communicator_.prepare(make_program(begins, begins ? to : from), large_bytes, 1);
      }
    }
    double fastest = std::numeric_limits<double>::infinity();
    for (int i = 0; i < repeats; ++i) {
      communicator_.run(barrier_request());
      const Clock::time_point start = Clock::now();
      communicator_.run("probe", program, data_.data(), large_bytes, DataType::u8, ReduceOp::sum);
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      fastest = std::min(fastest, greatest(begins ? seconds : 0));
    }
    return fastest;
  }

  double greatest(double own) {
    const auto program =
        communicator_.prepare(greatest_program(communicator_.size(), communicator_.rank(), 1), 1, sizeof own);
    communicator_.run("probe", program, &own, 1, DataType::f64, ReduceOp::max);
    return own;
  }

  CommunicatorImpl& communicator_;
  topology::CostModel cost_;
  ProbedMemory data_;
};

}  // namespace

std::vector<Measurement> probe(CommunicatorImpl& communicator, const Topology& topology,
                               const topology::CostModel& cost) {
  Prober prober(communicator, cost);
  std::vector<Measurement> result;
  for (const MeasuredWays& ways : ways_between(topology, communicator.size()))
    result.push_back(prober.measure(ways));
  return result;
}

}  // namespace ddl::collectives
