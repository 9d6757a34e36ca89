#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <thread>

#include "ddl/context.hpp"
#include "ddl/context/calibration.hpp"
#include "ddl/tools/command_line.hpp"
#include "ddl/tools/topo_commands.hpp"

namespace ddl::tools {
namespace {

using topology::Measurement;

ProbeResult probe_in(Context& context) {
  ProbeResult result;
  result.topology = context.topology();
  result.measurements = context.measure_ways();
  return result;
}

void keep(ProbeResult& result, const std::string& directory) {
  const MeasurementCache cache(directory);
  const std::string path = cache.path_for(*result.topology).string();
  if (path.empty()) {
    result.notes.emplace_back(
        "the results are not kept: set DDL_CACHE_DIR, XDG_CACHE_HOME or HOME to keep them");
    return;
  }
  cache.store(*result.topology, result.measurements);
  result.notes.push_back(fmt::format("kept in {}", path));
}

/// The topology's latency and bandwidth of the measured route.
std::pair<double, double> promised(const topology::Topology& topology, const Measurement& m) {
  double latency = 0;
  double bandwidth = std::numeric_limits<double>::infinity();
  const auto node = [&](int device) { return topology.node_of_device(device); };
  for (const topology::Channel channel : topology.route(node(m.from), node(m.to))) {
    const topology::Link& link = topology.link(topology::link_of(channel));
    latency += link.latency;
    bandwidth = std::min(bandwidth, link.bandwidth);
  }
  return {latency, bandwidth};
}

}  // namespace

std::optional<ProbeResult> probe_ways(int ranks, bool keep_figures) {
  ContextOptions options = ContextOptions::from_environment();
  options.probe = ProbeUse::off;
  std::optional<ProbeResult> result;
  if (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("PMIX_RANK") != nullptr) {
    if (ranks != 0)
      throw UsageError("--ranks cannot be given under mpirun, whose -n gives the number of ranks");
    Context context = Context::from_environment(options);
    ProbeResult own = probe_in(context);
    if (context.is_root()) result = std::move(own);
  } else {
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    if (ranks == 0) ranks = std::clamp(cores, 2, 8);
    InProcessOptions in_process;
    in_process.context = options;
    run_in_process(
        ranks,
        [&](Context& context) {
          ProbeResult own = probe_in(context);
          if (context.is_root()) result = std::move(own);
        },
        in_process);
    result->notes.push_back(fmt::format("{} ranks as threads of this process", ranks));
  }
  if (result && result->measurements.empty()) {
    result->notes.emplace_back("there is a single rank, so there is nothing to measure: mpirun -n 2 or more");
  } else if (result && keep_figures) {
    keep(*result, options.cache_directory);
  }
  return result;
}

std::string probe_text(const ProbeResult& result) {
  std::string text = fmt::format("topology {:016x}: {} hosts, {} devices\n\n", result.topology->hash(),
                                 result.topology->hosts().size(), result.topology->devices().size());
  text += fmt::format("{:<17} {:>9} {:>12} {:>9} {:>15} {:>9}\n", "WAY", "DEVICES", "LATENCY (us)",
                      "(assumed)", "BANDWIDTH (GB/s)", "(assumed)");
  for (const Measurement& m : result.measurements) {
    const auto [latency, bandwidth] = promised(*result.topology, m);
    text += fmt::format("{:<17} {:>9} {:>12.3g} {:>9.3g} {:>16.3g} {:>9.3g}\n", to_string(m.way),
                        fmt::format("{}, {}", m.from, m.to), m.latency, latency, m.bandwidth, bandwidth);
  }
  return text;
}

}  // namespace ddl::tools
