// The speed of the simulator; see --help.

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <string_view>

#include "ddl/tools/command_line.hpp"
#include "ddl/topology/program.hpp"
#include "ddl/topology/simulator.hpp"

namespace {

constexpr std::string_view help = R"(The speed of the simulator.

  simulator_speed [--topology NAME] [--ranks N] [--bytes B] [--decomposition D] [--algorithm A] [--chunks C]
                  [--placement host|round-robin] [--jitter J] [--repeat R]

Lowers an all-reduce of f32 in the given decomposition, with the same algorithm in every dimension, and simulates
it R times. Prints a JSON line: transfers, the simulated time, the wall times in s of lowering and of the fastest
simulation, transfers per second, and the process's peak memory. Without arguments it simulates 1,024 ranks, for
which the target is less than 30 s and 4 GB.
)";

using namespace ddl::topology;

struct Options {
  std::string topology = "dgx_h100:128";
  int ranks = 0;  // 0: all devices
  std::uint64_t bytes = 1U << 30U;
  std::string decomposition = "8x128";
  Algorithm algorithm = Algorithm::ring;
  int chunks = 16;
  bool by_host = true;
  double jitter = 0;
  int repeat = 1;
};

Options parse(std::span<const std::string> arguments) {
  using ddl::tools::Flag;
  constexpr std::array flags = {
      Flag{"--topology", true},      Flag{"--ranks", true},     Flag{"--bytes", true},
      Flag{"--decomposition", true}, Flag{"--algorithm", true}, Flag{"--chunks", true},
      Flag{"--placement", true},     Flag{"--jitter", true},    Flag{"--repeat", true}};
  const ddl::tools::CommandLine line = ddl::tools::parse_flags(arguments, flags);
  Options options;
  line.read("--topology", options.topology);
  line.read("--ranks", options.ranks, 1, 1 << 20);
  line.read("--bytes", options.bytes, 4, std::uint64_t{1} << 50U);
  line.read("--decomposition", options.decomposition);
  line.read("--algorithm", options.algorithm,
            {{"ring", Algorithm::ring},
             {"halving_doubling", Algorithm::halving_doubling},
             {"two_shot", Algorithm::two_shot},
             {"one_shot", Algorithm::one_shot},
             {"tree", Algorithm::tree}});
  line.read("--chunks", options.chunks, 1, 64);
  line.read("--placement", options.by_host, {{"host", true}, {"round-robin", false}});
  line.read("--jitter", options.jitter, 0, 1e6);
  line.read("--repeat", options.repeat, 1, 1'000'000);
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
  return ddl::tools::main_of("simulator_speed", help, count, arguments,
                             [](const std::vector<std::string>& words) {
                               measure(parse(words));
                               return 0;
                             });
}
