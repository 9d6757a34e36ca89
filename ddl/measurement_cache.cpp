#include "ddl/measurement_cache.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "ddl/durable_file.hpp"
#include "ddl/error.hpp"

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
  // Others' figures could make this job slow.
  if (status.st_uid != geteuid()) {
    throw_corrupt(path, fmt::format("a file of user {}", status.st_uid),
                  fmt::format("one of user {}, who runs this", geteuid()));
  }
  const FileReader file(path);
  if (file.size() > largest_file) throw_corrupt(path, fmt::format("{} bytes", file.size()), "measurements");
  return topology::measurements_from_json(file.read_all(), path.string(), topology);
}

void MeasurementCache::store(const topology::Topology& topology,
                             std::span<const topology::Measurement> measurements) const {
  const std::filesystem::path path = path_for(topology);
  if (path.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  if (error) throw_io("write", path, error.value());
  replace_file(path, topology::to_json(measurements, topology));
}

}  // namespace ddl
