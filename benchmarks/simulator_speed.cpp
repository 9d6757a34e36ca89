// How fast the simulator is. --help says more.

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>

#include "ddl/error.hpp"
#include "ddl/topology/lowering.hpp"
#include "ddl/topology/simulator.hpp"

namespace {

constexpr std::string_view help = R"(How fast the simulator is.

  simulator_speed [--topology NAME] [--ranks N] [--bytes B] [--decomposition D] [--algorithm A] [--chunks C]
                  [--placement host|round-robin] [--jitter J] [--repeat R]

Lowers an all-reduce of f32 in that decomposition, with the same algorithm in every dimension, and
simulates it R times. Prints a JSON line: transfers, the simulated time, wall times in s of lowering and of
the fastest simulation, transfers a second, and the process's peak memory. The target: 1,024 ranks in
under 30 s and 4 GB, which is what it does without arguments.
)";

using namespace ddl::topology;

struct Options {
  std::string topology = "dgx_h100:128";
  int ranks = 0;  // all devices
  std::uint64_t bytes = 1U << 30U;
  std::string decomposition = "8x128";
  Algorithm algorithm = Algorithm::ring;
  int chunks = 16;
  bool by_host = true;
  double jitter = 0;
  int repeat = 1;
};

[[noreturn]] void refuse(std::string_view flag, std::string_view value, std::string_view expected) {
  throw ddl::Error(ddl::ErrorCode::invalid_argument,
                   fmt::format("{}: found '{}', expected {}", flag, value, expected));
}

template <typename Number>
Number parse_number(std::string_view flag, std::string_view value, Number least, Number most) {
  Number result{};
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
  const bool is_fine = error == std::errc{} && end == value.data() + value.size() && result >= least &&
                       result <= most;  // false for NaN
  if (!is_fine) refuse(flag, value, fmt::format("a number from {} to {}", least, most));
  return result;
}

Algorithm parse_algorithm(std::string_view flag, std::string_view value) {
  for (const Algorithm algorithm : {Algorithm::ring, Algorithm::halving_doubling, Algorithm::two_shot,
                                    Algorithm::one_shot, Algorithm::tree}) {
    if (to_string(algorithm) == value) return algorithm;
  }
  refuse(flag, value, "ring, halving_doubling, two_shot, one_shot or tree");
}

Options parse(int count, char** arguments) {
  Options options;
  for (int i = 1; i < count; i += 2) {
    const std::string_view flag = arguments[i];
    if (i + 1 == count) refuse(flag, "", "a value after it");
    const std::string_view value = arguments[i + 1];
    if (flag == "--topology") {
      options.topology = value;
    } else if (flag == "--ranks") {
      options.ranks = parse_number(flag, value, 1, 1 << 20);
    } else if (flag == "--bytes") {
      options.bytes = parse_number<std::uint64_t>(flag, value, 4, std::uint64_t{1} << 50U);
    } else if (flag == "--decomposition") {
      options.decomposition = value;
    } else if (flag == "--algorithm") {
      options.algorithm = parse_algorithm(flag, value);
    } else if (flag == "--chunks") {
      options.chunks = parse_number(flag, value, 1, 64);
    } else if (flag == "--placement") {
      if (value != "host" && value != "round-robin") refuse(flag, value, "host or round-robin");
      options.by_host = value == "host";
    } else if (flag == "--jitter") {
      options.jitter = parse_number(flag, value, 0.0, 1e6);
    } else if (flag == "--repeat") {
      options.repeat = parse_number(flag, value, 1, 1'000'000);
    } else {
      refuse("flag", flag, "one of those at the top of this program's source");
    }
  }
  return options;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void measure(const Options& options) {
  const Topology topology = make_preset(options.topology);
  const int ranks = options.ranks > 0 ? options.ranks : static_cast<int>(topology.devices().size());
  Plan plan;
  plan.decomposition = Decomposition::parse(options.decomposition, ranks);
  plan.dimensions.assign(static_cast<std::size_t>(plan.decomposition.dimensions()),
                         {options.algorithm, Carrier::network});
  plan.order.resize(static_cast<std::size_t>(ranks));
  std::iota(plan.order.begin(), plan.order.end(), 0);
  plan.chunks = options.chunks;

  const auto start = std::chrono::steady_clock::now();
  const Schedule schedule = lower_all(plan, options.bytes / 4);
  const double lowering_s = seconds_since(start);

  Simulator simulator(topology,
                      options.by_host ? place_by_host(topology, ranks) : place_round_robin(topology, ranks));
  SimulationOptions simulation_options;
  simulation_options.jitter = options.jitter;
  double wall_s = std::numeric_limits<double>::infinity();
  Simulation simulation;
  for (int i = 0; i < options.repeat; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    simulation = simulator.run(schedule, simulation_options);
    wall_s = std::min(wall_s, seconds_since(begin));
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const double peak_mib = static_cast<double>(usage.ru_maxrss) / 1024;
  fmt::print(
      "{{\"topology\":\"{}\",\"ranks\":{},\"bytes\":{},\"decomposition\":\"{}\",\"algorithm\":\"{}\","
      "\"chunks\":{},\"jitter\":{},\"transfers\":{},\"simulated_us\":{:.3f},\"lowering_s\":{:.3f},"
      "\"wall_s\":{:.6f},\"transfers_per_s\":{:.0f},\"peak_mib\":{:.0f}}}\n",
      options.topology, ranks, options.bytes, options.decomposition, to_string(options.algorithm),
      options.chunks, options.jitter, simulation.transfers, simulation.total_us, lowering_s, wall_s,
      static_cast<double>(simulation.transfers) / wall_s, peak_mib);
}

}  // namespace

int main(int count, char** arguments) {
  if (count > 1 && std::string_view(arguments[1]) == "--help") {
    fmt::print("{}", help);
    return 0;
  }
  try {
    measure(parse(count, arguments));
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "simulator_speed: {}\n", error.what());
    return 2;
  }
}
