// Measurements as JSON. The files are small, so they are read as a whole.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "ddl/error.hpp"
#include "ddl/topology/calibrate.hpp"
#include "topology/json_text.hpp"

namespace ddl::topology {
namespace {

using json = nlohmann::json;

constexpr int format_version = 1;
constexpr std::size_t longest_text = std::size_t{64} << 10;
constexpr std::array kinds = {WayKind::inside_package, WayKind::between_packages, WayKind::between_hosts};

std::string hexadecimal(std::uint64_t value) { return fmt::format("0x{:016x}", value); }

class Reader {
 public:
  explicit Reader(std::string_view source) : source_(source) {}

  std::vector<Measurement> read(std::string_view text, const Topology& topology) {
    if (text.size() > longest_text) {
      fail("", fmt::format("{} bytes", text.size()), fmt::format("at most {}", longest_text));
    }
    const json root = parse(text);
    expect_keys(root, "", {"ddl_measurements", "topology_hash", "ways"});
    if (const json& version = root["ddl_measurements"]; version != format_version) {
      fail("ddl_measurements", shown(version), std::to_string(format_version));
    }
    if (const json& hash = root["topology_hash"]; hash != hexadecimal(topology.hash())) {
      fail("topology_hash", shown(hash), fmt::format("\"{}\", this job's", hexadecimal(topology.hash())));
    }
    const json& ways = root["ways"];
    if (!ways.is_array() || ways.size() > kinds.size()) {
      fail("ways", ways.is_array() ? fmt::format("{} entries", ways.size()) : ways.type_name(),
           fmt::format("a list of at most {}", kinds.size()));
    }
    std::vector<Measurement> result;
    for (std::size_t i = 0; i < ways.size(); ++i) result.push_back(way(ways[i], fmt::format("ways[{}]", i)));
    try {
      calibrated(topology, result);
    } catch (const Error& error) {
      throw Error(ErrorCode::corrupt_data, fmt::format("{}: {}", source_, error.what()));
    }
    return result;
  }

 private:
  /// A value as it may be shown on a terminal.
  static std::string shown(const json& value) {
    return printable(value.dump(-1, ' ', true, json::error_handler_t::replace));
  }

  [[noreturn]] void fail(std::string_view path, std::string_view found, std::string_view expected) const {
    throw Error(ErrorCode::corrupt_data, fmt::format("{}: {}{}found {}, expected {}", source_, path,
                                                     path.empty() ? "" : ": ", found, expected));
  }

  /// Keys that repeat would hide one another.
  [[nodiscard]] json parse(std::string_view text) const {
    std::vector<std::set<std::string>> seen;
    std::string repeated;
    try {
      json root = json::parse(text, [&](int, json::parse_event_t event, json& value) {
        if (event == json::parse_event_t::object_start) seen.emplace_back();
        if (event == json::parse_event_t::object_end) seen.pop_back();
        if (event == json::parse_event_t::key && !seen.back().insert(value.get<std::string>()).second) {
          repeated = value.get<std::string>();
        }
        return true;
      });
      if (!repeated.empty()) fail("", fmt::format("a key twice: {}", in_quotes(repeated)), "each key once");
      return root;
    } catch (const json::exception& error) {
      fail("", fmt::format("no JSON ({})", printable(error.what())), "measurements");
    }
  }

  void expect_keys(const json& object, const std::string& path,
                   std::initializer_list<std::string_view> keys) const {
    if (!object.is_object()) fail(path, object.type_name(), "an object");
    for (const auto& [key, value] : object.items()) {
      if (std::ranges::find(keys, std::string_view(key)) == keys.end()) {
        fail(path, fmt::format("an unknown key: {}", in_quotes(key)), "no other keys");
      }
    }
    for (const std::string_view key : keys) {
      if (!object.contains(std::string(key))) fail(path, fmt::format("no key \"{}\"", key), "it");
    }
  }

  [[nodiscard]] int device(const json& value, const std::string& path) const {
    constexpr std::uint64_t most = Topology::most_nodes;
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most) {
      fail(path, shown(value), "a device's index");
    }
    return value.get<int>();
  }

  [[nodiscard]] double number(const json& value, const std::string& path) const {
    if (!value.is_number()) fail(path, value.type_name(), "a number");
    return value.get<double>();
  }

  [[nodiscard]] Measurement way(const json& entry, const std::string& path) const {
    expect_keys(entry, path, {"way", "from", "to", "latency", "bandwidth"});
    Measurement result;
    const json& name = entry["way"];
    const auto* const found =
        std::ranges::find_if(kinds, [&](WayKind kind) { return name == to_string(kind); });
    if (found == kinds.end()) {
      fail(path + ".way", shown(name), "inside_package, between_packages or between_hosts");
    }
    result.way = *found;
    result.from = device(entry["from"], path + ".from");
    result.to = device(entry["to"], path + ".to");
    result.latency = number(entry["latency"], path + ".latency");
    result.bandwidth = number(entry["bandwidth"], path + ".bandwidth");
    return result;
  }

  std::string_view source_;
};

}  // namespace

std::string to_json(std::span<const Measurement> measurements, const Topology& topology) {
  nlohmann::ordered_json ways = nlohmann::ordered_json::array();
  for (const Measurement& m : measurements) {
    ways.push_back({{"way", to_string(m.way)},
                    {"from", m.from},
                    {"to", m.to},
                    {"latency", m.latency},
                    {"bandwidth", m.bandwidth}});
  }
  const nlohmann::ordered_json root = {{"ddl_measurements", format_version},
                                       {"topology_hash", hexadecimal(topology.hash())},
                                       {"ways", std::move(ways)}};
  return root.dump(2) + "\n";
}

std::vector<Measurement> measurements_from_json(std::string_view text, std::string_view source,
                                                const Topology& topology) {
  return Reader(source).read(text, topology);
}

}  // namespace ddl::topology
