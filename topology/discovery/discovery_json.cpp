#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "ddl/error.hpp"
#include "ddl/nearest_name.hpp"
#include "ddl/topology/discovery.hpp"
#include "topology/discovery/sysfs.hpp"

namespace ddl::topology {
namespace {

using Json = nlohmann::ordered_json;

constexpr int format_version = 1;
constexpr std::size_t most_of_a_kind = 65'536;  // packages, NICs, GPUs, bridges
constexpr int most_nvlinks = 1'024;

constexpr std::array<std::pair<NvlinkPeer, std::string_view>, 4> peer_names = {{
    {NvlinkPeer::gpu, "gpu"},
    {NvlinkPeer::nvswitch, "nvswitch"},
    {NvlinkPeer::cpu, "cpu"},
    {NvlinkPeer::unknown, "unknown"},
}};

Json json_of(const PciPlace& pci) {
  return {{"address", pci.address},
          {"bridges", pci.bridges},
          {"numa_node", pci.numa_node},
          {"bandwidth", pci.bandwidth}};
}

Json json_of(const NvlinkDescription& link) {
  std::string_view peer;
  for (const auto& [value, name] : peer_names) {
    if (value == link.peer) peer = name;
  }
  return {{"peer", peer}, {"address", link.address}, {"count", link.count}};
}

/// A value with the path to it, for messages.
class Reader {
 public:
  Reader(const Json& value, std::string path, std::string_view source)
      : value_(&value), path_(std::move(path)), source_(source) {}

  [[noreturn]] void refuse(std::string_view expected) const {
    std::string found = value_->dump(-1, ' ', true, Json::error_handler_t::replace);
    if (found.size() > 60) found = found.substr(0, 57) + "...";
    throw Error(ErrorCode::corrupt_data,
                fmt::format("{}: {}: found {}, expected {}", source_, path_.empty() ? "the document" : path_,
                            found, expected));
  }

  /// Checks that the keys of an object are just these.
  void expect_keys(std::initializer_list<std::string_view> names) const {
    if (!value_->is_object()) refuse("an object");
    for (const auto& [key, value] : value_->items()) {
      if (std::ranges::find(names, key) == names.end()) {
        const std::string_view nearest = nearest_name(key, std::span(names.begin(), names.size()));
        throw Error(ErrorCode::corrupt_data,
                    fmt::format("{}: {}: found an unknown key; the nearest is \"{}\"", source_,
                                path_of(key.substr(0, 60)), nearest));
      }
    }
    for (const std::string_view name : names) {
      if (!value_->contains(name)) {
        throw Error(ErrorCode::corrupt_data,
                    fmt::format("{}: {}: found nothing, expected this key", source_, path_of(name)));
      }
    }
  }

  [[nodiscard]] Reader operator[](std::string_view key) const {
    return {value_->at(std::string(key)), path_of(key), source_};
  }

  template <typename Function>
  auto list(Function&& read) const {
    if (!value_->is_array()) refuse("a list");
    if (value_->size() > most_of_a_kind) refuse(fmt::format("at most {} elements", most_of_a_kind));
    std::vector<decltype(read(*this))> result;
    for (std::size_t i = 0; i < value_->size(); ++i) {
      result.push_back(read(Reader((*value_)[i], fmt::format("{}[{}]", path_, i), source_)));
    }
    return result;
  }

  [[nodiscard]] std::string text() const {
    if (!value_->is_string()) refuse("text");
    return value_->get<std::string>();
  }

  [[nodiscard]] std::string some_text() const {
    if (!value_->is_string() || value_->get_ref<const std::string&>().empty())
      refuse("text that is not empty");
    return value_->get<std::string>();
  }

  [[nodiscard]] bool boolean() const {
    if (!value_->is_boolean()) refuse("true or false");
    return value_->get<bool>();
  }

  [[nodiscard]] int integer(int least, int most) const {
    if (value_->is_number_integer()) {
      const bool fits =
          !value_->is_number_unsigned() ||
          value_->get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<int>::max());
      const std::int64_t number =
          fits ? value_->get<std::int64_t>() : std::numeric_limits<std::int64_t>::max();
      if (number >= least && number <= most) return static_cast<int>(number);
    }
    refuse(fmt::format("an integer from {} to {}", least, most));
  }

  [[nodiscard]] std::uint64_t bytes() const {
    if (!value_->is_number_unsigned()) refuse("a number of bytes");
    return value_->get<std::uint64_t>();
  }

  [[nodiscard]] double number(double most) const {
    if (value_->is_number()) {
      const double number = value_->get<double>();
      if (number >= 0 && number <= most) return number;
    }
    refuse(fmt::format("a number from 0 to {}", most));
  }

 private:
  [[nodiscard]] std::string path_of(std::string_view key) const {
    return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
  }

  const Json* value_;
  std::string path_;
  std::string_view source_;
};

PciPlace read_pci(const Reader& reader) {
  reader.expect_keys({"address", "bridges", "numa_node", "bandwidth"});
  PciPlace pci;
  pci.address = reader["address"].text();
  pci.bridges = reader["bridges"].list([](const Reader& bridge) { return bridge.some_text(); });
  pci.numa_node = reader["numa_node"].integer(-1, 65'535);
  pci.bandwidth = reader["bandwidth"].number(1e6);
  return pci;
}

CpuDescription read_cpu(const Reader& reader) {
  reader.expect_keys({"architecture", "vendor", "name", "family", "model"});
  CpuDescription cpu;
  cpu.architecture = reader["architecture"].text();
  cpu.vendor = reader["vendor"].text();
  cpu.name = reader["name"].text();
  cpu.family = reader["family"].integer(0, 65'535);
  cpu.model = reader["model"].integer(0, 65'535);
  return cpu;
}

PackageDescription read_package(const Reader& reader) {
  reader.expect_keys({"socket", "numa_node", "cpus", "cores", "memory"});
  PackageDescription package;
  package.socket = reader["socket"].integer(0, 65'535);
  package.numa_node = reader["numa_node"].integer(-1, 65'535);
  const auto cpus = parse_cpu_list(reader["cpus"].text());
  if (!cpus || cpus->empty()) reader["cpus"].refuse("an ascending list of CPUs, such as \"0-3,8\"");
  package.cpus = *cpus;
  package.cores = reader["cores"].integer(1, 65'536);
  package.memory = reader["memory"].bytes();
  return package;
}

NicDescription read_nic(const Reader& reader) {
  reader.expect_keys({"name", "pci", "speed", "is_infiniband", "is_up", "is_virtual"});
  NicDescription nic;
  nic.name = reader["name"].some_text();
  nic.pci = read_pci(reader["pci"]);
  nic.speed = reader["speed"].number(1e6);
  nic.is_infiniband = reader["is_infiniband"].boolean();
  nic.is_up = reader["is_up"].boolean();
  nic.is_virtual = reader["is_virtual"].boolean();
  return nic;
}

NvlinkDescription read_nvlink(const Reader& reader) {
  reader.expect_keys({"peer", "address", "count"});
  NvlinkDescription link;
  const std::string peer = reader["peer"].text();
  const auto* const found = std::ranges::find(peer_names, peer, &decltype(peer_names)::value_type::second);
  if (found == peer_names.end()) reader["peer"].refuse("\"gpu\", \"nvswitch\", \"cpu\" or \"unknown\"");
  link.peer = found->first;
  link.address = reader["address"].text();
  link.count = reader["count"].integer(1, most_nvlinks);
  return link;
}

GpuDescription read_gpu(const Reader& reader) {
  reader.expect_keys({"pci", "model", "compute_capability", "memory", "nvlinks"});
  GpuDescription gpu;
  gpu.pci = read_pci(reader["pci"]);
  if (gpu.pci.address.empty()) reader["pci"]["address"].refuse("a PCI address");
  gpu.model = reader["model"].text();
  gpu.compute_capability = reader["compute_capability"].integer(0, 999);
  gpu.memory = reader["memory"].bytes();
  gpu.nvlinks = reader["nvlinks"].list(read_nvlink);
  return gpu;
}

template <typename Element, typename Name>
void refuse_repetition(const Reader& list, const std::vector<Element>& elements, Name&& name_of) {
  std::set<std::string> names;
  for (const Element& element : elements) {
    if (!names.insert(name_of(element)).second) {
      list.refuse(fmt::format("each just once, but '{}' repeats", name_of(element)));
    }
  }
}

}  // namespace

std::string to_json(const HostDescription& host) {
  Json cpu = {{"architecture", host.cpu.architecture},
              {"vendor", host.cpu.vendor},
              {"name", host.cpu.name},
              {"family", host.cpu.family},
              {"model", host.cpu.model}};
  Json packages = Json::array();
  for (const PackageDescription& package : host.packages) {
    packages.push_back({{"socket", package.socket},
                        {"numa_node", package.numa_node},
                        {"cpus", format_cpu_list(package.cpus)},
                        {"cores", package.cores},
                        {"memory", package.memory}});
  }
  Json nics = Json::array();
  for (const NicDescription& nic : host.nics) {
    nics.push_back({{"name", nic.name},
                    {"pci", json_of(nic.pci)},
                    {"speed", nic.speed},
                    {"is_infiniband", nic.is_infiniband},
                    {"is_up", nic.is_up},
                    {"is_virtual", nic.is_virtual}});
  }
  Json gpus = Json::array();
  for (const GpuDescription& gpu : host.gpus) {
    Json links = Json::array();
    for (const NvlinkDescription& link : gpu.nvlinks) links.push_back(json_of(link));
    gpus.push_back({{"pci", json_of(gpu.pci)},
                    {"model", gpu.model},
                    {"compute_capability", gpu.compute_capability},
                    {"memory", gpu.memory},
                    {"nvlinks", std::move(links)}});
  }
  const Json document = {{"host_description", format_version},
                         {"hostname", host.hostname},
                         {"cpu", std::move(cpu)},
                         {"packages", std::move(packages)},
                         {"nics", std::move(nics)},
                         {"gpus", std::move(gpus)},
                         {"notes", host.notes}};
  // Names come from the system and need not be UTF-8.
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

HostDescription host_description_from_json(std::string_view text, std::string_view source) {
  Json document;
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto refuse_repeated_keys = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
      throw Error(ErrorCode::corrupt_data,
                  fmt::format("{}: found the key {} twice in an object, expected it once", source,
                              value.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 60)));
    }
    return true;
  };
  try {
    document = Json::parse(text, refuse_repeated_keys);
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::corrupt_data, fmt::format("{}: not JSON: {}", source, error.what()));
  }
  const Reader reader(document, "", source);
  reader.expect_keys({"host_description", "hostname", "cpu", "packages", "nics", "gpus", "notes"});
  (void)reader["host_description"].integer(format_version, format_version);
  HostDescription host;
  host.hostname = reader["hostname"].some_text();
  host.cpu = read_cpu(reader["cpu"]);
  host.packages = reader["packages"].list(read_package);
  if (host.packages.empty()) reader["packages"].refuse("at least one package");
  host.nics = reader["nics"].list(read_nic);
  refuse_repetition(reader["nics"], host.nics, [](const NicDescription& nic) { return nic.name; });
  host.gpus = reader["gpus"].list(read_gpu);
  refuse_repetition(reader["gpus"], host.gpus, [](const GpuDescription& gpu) { return gpu.pci.address; });
  host.notes = reader["notes"].list([](const Reader& note) { return note.text(); });
  return host;
}

}  // namespace ddl::topology
