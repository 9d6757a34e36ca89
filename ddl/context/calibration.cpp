#include "ddl/context/calibration.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "collectives/communicator/probe.hpp"
#include "ddl/checkpoint.hpp"
#include "ddl/files/durable_file.hpp"

namespace ddl {

std::filesystem::path MeasurementCache::path_for(const topology::Topology& topology) const {
  if (directory_.empty()) return {};
  return directory_ / fmt::format("ways-{:016x}.json", topology.hash());
}

std::optional<std::vector<topology::Measurement>> MeasurementCache::load(
    const topology::Topology& topology) const {
  constexpr std::uint64_t largest_file = std::uint64_t{64} << 10;
  const std::filesystem::path path = path_for(topology);
  if (path.empty()) return std::nullopt;
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    throw_io("read", path, errno);
  }
  // Another user's figures could slow this job down.
  if (status.st_uid != geteuid()) {
    throw_corrupt(path, fmt::format("a file of user {}", status.st_uid),
                  fmt::format("one of user {}, who runs this", geteuid()));
  }
  return topology::measurements_from_json(read_file(path, largest_file, "measurements"), path.string(),
                                          topology);
}

void MeasurementCache::store(const topology::Topology& topology,
                             std::span<const topology::Measurement> measurements) const {
  const std::filesystem::path path = path_for(topology);
  if (path.empty()) return;
  make_directories(directory_);
  write_file_atomically(path, topology::to_json(measurements, topology));
}

namespace {

using Measurements = std::vector<topology::Measurement>;

/// Returns the content of rank 0's cache on every rank.
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
    try {
      if (bootstrap.rank() == 0) cache.store(*topology, *measurements);
    } catch (const Error& error) {
      log.warning(fmt::format("measured figures of links are not kept: {}", error.what()));
    }
    log.info(fmt::format("links measured, figures kept in {}", cache.path_for(*topology).string()));
  }
  if (!measurements) return;
  for (const topology::Measurement& m : *measurements) {
    log.info(fmt::format("{}: {:.3g} us, {:.3g} GB/s", to_string(m.way), m.latency, m.bandwidth));
  }
  communicator.plans().replace_topology(
      std::make_shared<const topology::Topology>(calibrated(*topology, *measurements)));
  // Ranks that are threads share the plan book: no rank may choose a plan before all have replaced the
  // topology.
  bootstrap.all_gather({});
}

}  // namespace ddl
