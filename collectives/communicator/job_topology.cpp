#include "collectives/communicator/job_topology.hpp"

#include <map>

#include "collectives/system/fail_agreed.hpp"

namespace ddl::collectives {

using topology::HostDescription;
using topology::NodeKind;
using topology::RankMap;
using topology::Topology;

namespace {

// A rank sends nothing, or one of these letters and a text.
constexpr char found = '+';
constexpr char failed = '-';

std::string described(const DiscoverHost& discover) {
  try {
    return found + to_json(discover());
  } catch (const std::exception& error) {
    return failed + std::string(error.what());
  }
}

/// The description of a host about which nothing else is known.
HostDescription plain_host(const std::string& name, std::size_t ranks) {
  HostDescription host;
  host.hostname = name;
  host.packages.emplace_back();
  host.packages.back().cores = static_cast<int>(ranks);
  return host;
}

std::vector<int> hosts_of_ranks(const RankMap& map) {
  std::vector<int> hosts;
  for (int rank = 0; rank < map.ranks(); ++rank) hosts.push_back(map.host_of(rank));
  return hosts;
}

/// `texts[h]`: the text of host h's lowest rank. `gpus`: by rank; empty if ranks are on cores.
JobTopology join(const std::vector<std::string>& texts, const RankMap& map,
                 const std::vector<topology::GpuDescription>& gpus = {}) {
  JobTopology result;
  std::vector<HostDescription> hosts;
  const auto plain = [&](int host) { return plain_host(map.host_name(host), map.ranks_of(host).size()); };
  for (int host = 0; host < map.hosts(); ++host) {
    const std::string& text = texts[as_index(host)];
    const std::string source = fmt::format("the description of host {}", map.host_name(host));
    std::string problem;
    if (text.starts_with(found)) {
      try {
        hosts.push_back(topology::host_description_from_json(std::string_view(text).substr(1), source));
        for (const std::string& note : hosts.back().notes) {
          result.notes.push_back(fmt::format("host {}: {}", map.host_name(host), note));
        }
        continue;
      } catch (const Error& error) {
        problem = error.what();
      }
    } else {
      problem = text.empty() ? "nothing came" : text.substr(1);
    }
    result.warnings.push_back(
        fmt::format("host {} could not be described, so plans treat it as one package of equal cores: {}",
                    map.host_name(host), problem));
    hosts.push_back(plain(host));
  }
  const std::vector<int> host_of_rank = hosts_of_ranks(map);
  const auto merged = [&] {
    const NodeKind kind = gpus.empty() ? NodeKind::cpu : NodeKind::gpu;
    return std::make_shared<const Topology>(topology::merge(hosts, host_of_rank, kind, gpus));
  };
  try {
    result.topology = merged();
  } catch (const Error& error) {
    result.warnings.push_back(
        fmt::format("plans treat every host as one package of equal cores: {}", error.what()));
    hosts.clear();
    for (int host = 0; host < map.hosts(); ++host) hosts.push_back(plain(host));
    result.topology = merged();
  }
  return result;
}

void require_same_topology(Bootstrap& bootstrap, const Topology& topology) {
  const std::vector<std::string> hashes = bootstrap.all_gather(fmt::format("{:016x}", topology.hash()));
  for (std::size_t rank = 0; rank < hashes.size(); ++rank) {
    if (hashes[rank] == hashes[0]) continue;
    fail_agreed(ErrorCode::mismatch,
                "the topology has the hash {} on rank 0 and {} on rank {}: do all ranks run the "
                "same version of the library?",
                hashes[0], hashes[rank], rank);
  }
}

/// By host: the text of its lowest rank.
std::vector<std::string> gather_hosts(Bootstrap& bootstrap, const RankMap& map,
                                      const DiscoverHost& discover) {
  const int rank = bootstrap.rank();
  const bool is_lowest = map.ranks_of(map.host_of(rank)).front() == rank;
  const std::vector<std::string> sent = bootstrap.all_gather(is_lowest ? described(discover) : std::string());
  std::vector<std::string> texts;
  for (int host = 0; host < map.hosts(); ++host) texts.push_back(sent[as_index(map.ranks_of(host).front())]);
  return texts;
}

}  // namespace

JobTopology discover_job(Bootstrap& bootstrap, const RankMap& map, const DiscoverHost& discover) {
  JobTopology result = join(gather_hosts(bootstrap, map, discover), map);
  require_same_topology(bootstrap, *result.topology);
  return result;
}

JobTopology discover_devices(Bootstrap& bootstrap, const RankMap& map, const topology::GpuDescription& own,
                             const DiscoverHost& discover) {
  HostDescription sent = plain_host("a rank's", 1);  // only the GPU is used
  sent.packages.front().cpus = {0};
  sent.gpus = {own};
  std::vector<topology::GpuDescription> gpus;
  for (const std::string& text : bootstrap.all_gather(to_json(sent))) {
    gpus.push_back(topology::host_description_from_json(text, "the description of a rank's GPU").gpus.at(0));
  }
  JobTopology result = join(gather_hosts(bootstrap, map, discover), map, gpus);
  require_same_topology(bootstrap, *result.topology);
  return result;
}

JobTopology discover_in_process(const RankMap& map, const DiscoverHost& discover) {
  return join(std::vector<std::string>(as_index(map.hosts()), described(discover)), map);
}

JobTopology share_topology(Bootstrap& bootstrap, const std::function<Topology()>& load) {
  std::string text;
  if (bootstrap.rank() == 0) {
    try {
      text = found + to_json(load());
    } catch (const Error& error) {
      text = fmt::format("{}{} {}", failed, static_cast<int>(error.code()), error.what());
    } catch (const std::exception& error) {
      text = fmt::format("{}{} {}", failed, static_cast<int>(ErrorCode::internal), error.what());
    }
  }
  text = bootstrap.all_gather(text).front();
  if (text.starts_with(failed)) {
    const std::size_t space = text.find(' ');
    throw Error(static_cast<ErrorCode>(std::stoi(text.substr(1, space - 1))), text.substr(space + 1))
        .as_agreed();
  }
  JobTopology result;
  result.topology = std::make_shared<const Topology>(
      topology::topology_from_json(std::string_view(text).substr(1), "rank 0's topology"));
  require_same_topology(bootstrap, *result.topology);
  return result;
}

bool has_same_hosts(const Topology& topology, const RankMap& map) {
  std::map<int, int> device_host_of;  // by the ranks' host
  std::map<int, int> host_of;         // the inverse
  for (int rank = 0; rank < map.ranks(); ++rank) {
    const int device = topology.devices().at(as_index(rank));
    const int device_host = topology.node(device).host;
    const int host = map.host_of(rank);
    if (device_host_of.try_emplace(host, device_host).first->second != device_host ||
        host_of.try_emplace(device_host, host).first->second != host) {
      return false;
    }
  }
  return true;
}

}  // namespace ddl::collectives
