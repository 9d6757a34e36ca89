#include "ddl/calibration.hpp"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <vector>

#include "collectives/probe.hpp"
#include "ddl/measurement_cache.hpp"

namespace ddl {
namespace {

using Measurements = std::vector<topology::Measurement>;

/// What rank 0 has in its cache, on every rank.
std::optional<Measurements> load(collectives::Bootstrap& bootstrap, const MeasurementCache& cache,
                                 const topology::Topology& topology, Log& log) {
  std::string text;
  if (bootstrap.rank() == 0) {
    try {
      if (const std::optional<Measurements> found = cache.load(topology)) text = to_json(*found, topology);
    } catch (const Error& error) {
      log.warning(fmt::format("measured figures of links are not used: {}", error.what()));
    }
  }
  text = bootstrap.all_gather(text).front();
  if (text.empty()) return std::nullopt;
  return topology::measurements_from_json(text, "rank 0's measurements", topology);
}

void store(const MeasurementCache& cache, const topology::Topology& topology,
           const Measurements& measurements, Log& log) {
  try {
    cache.store(topology, measurements);
  } catch (const Error& error) {
    log.warning(fmt::format("measured figures of links are not kept: {}", error.what()));
  }
}

}  // namespace

void calibrate_plans(collectives::Bootstrap& bootstrap, collectives::CommunicatorImpl& communicator,
                     const ContextOptions& options, Log& log) {
  if (options.probe == ProbeUse::off || communicator.size() == 1) return;
  const auto topology = communicator.plans().topology();
  const MeasurementCache cache(options.cache_directory);
  std::optional<Measurements> measurements = load(bootstrap, cache, *topology, log);
  if (measurements) {
    log.info(fmt::format("measured figures of links from {}", cache.path_for(*topology).string()));
  } else if (options.probe == ProbeUse::on) {
    measurements = collectives::probe(communicator, *topology);
    if (bootstrap.rank() == 0) store(cache, *topology, *measurements, log);
    log.info(fmt::format("links measured, figures kept in {}", cache.path_for(*topology).string()));
  }
  if (!measurements) return;
  for (const topology::Measurement& m : *measurements) {
    log.info(fmt::format("{}: {:.3g} us, {:.3g} GB/s", to_string(m.way), m.latency, m.bandwidth));
  }
  communicator.plans().replace_topology(
      std::make_shared<const topology::Topology>(calibrated(*topology, *measurements)));
  // Ranks that are threads share the plans: nobody asks for one before all have done this.
  bootstrap.all_gather({});
}

}  // namespace ddl
