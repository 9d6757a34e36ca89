#include "perf/machine.hpp"

#include <sched.h>

#include <fstream>
#include <utility>

namespace perf {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(':');
    if (colon != std::string::npos && colon + 2 < line.size()) return line.substr(colon + 2);
  }
  return "unknown";
}

int cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

std::string version() { return DDL_VERSION; }

StolenTime::StolenTime() : start_(now()) {}

std::optional<StolenTime::Ticks> StolenTime::now() {
  // Fields: user nice system idle iowait irq softirq steal.
  std::ifstream file("/proc/stat");
  std::string word;
  if (!(file >> word) || word != "cpu") return {};
  Ticks ticks;
  for (int field = 0; field < 8; ++field) {
    double value = 0;
    if (!(file >> value)) return {};
    ticks.all += value;
    ticks.stolen = value;
  }
  return ticks;
}

std::optional<double> StolenTime::share(double least_ticks) const {
  const std::optional<Ticks> end = now();
  if (!start_ || !end) return {};
  const double all = end->all - start_->all;
  if (all < least_ticks) return {};
  return (end->stolen - start_->stolen) / all;
}

std::string placement_of(const ddl::topology::RankMap& map) {
  bool is_by_host = true;
  bool is_dealt = true;  // in rounds over the hosts
  const auto round_and_host = [&](int rank) { return std::pair(map.local_rank(rank), map.host_of(rank)); };
  for (int rank = 1; rank < map.ranks(); ++rank) {
    is_by_host = is_by_host && map.host_of(rank) >= map.host_of(rank - 1);
    is_dealt = is_dealt && round_and_host(rank) > round_and_host(rank - 1);
  }
  if (is_by_host) return "host";
  return is_dealt ? "round_robin" : "mixed";
}

std::vector<int> ranks_per_host(const ddl::topology::RankMap& map) {
  std::vector<int> result;
  for (int host = 0; host < map.hosts(); ++host) {
    result.push_back(static_cast<int>(map.ranks_of(host).size()));
  }
  return result;
}

}  // namespace perf
