#include "ddl/named_topology.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <vector>

#include "ddl/durable_file.hpp"
#include "ddl/error.hpp"
#include "ddl/nearest_name.hpp"

namespace ddl {

topology::Topology topology_by_name(const std::string& name) {
  constexpr std::uint64_t largest_file = std::uint64_t{256} << 20;
  const std::string_view preset = std::string_view(name).substr(0, name.find(':'));
  std::vector<std::string_view> presets;
  for (const topology::Preset& candidate : topology::presets()) presets.push_back(candidate.name);
  if (std::ranges::find(presets, preset) != presets.end()) return topology::make_preset(name);
  std::error_code ignored;
  if (!std::filesystem::exists(name, ignored)) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("DDL_TOPOLOGY: found '{}', which is no file, expected one or a preset's name; the "
                    "nearest preset is '{}' (ddl-topo presets lists all)",
                    name, nearest_name(preset, presets)));
  }
  const FileReader file(name);
  if (file.size() > largest_file) {
    throw_corrupt(name, fmt::format("{} bytes", file.size()), "a topology");
  }
  const std::string text = file.read_all();
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  if (start != std::string::npos && text[start] == '<') {
    return topology::topology_from_nccl_xml(std::span(&text, 1), std::span(&name, 1));
  }
  return topology::topology_from_json(text, name);
}

void save_topology(const ContextOptions& options, const topology::Topology& topology, std::string_view suffix,
                   Log& log) {
  if (options.save_topology.empty()) return;
  try {
    const std::string path = fmt::format("{}{}", options.save_topology, suffix);
    replace_file(path, to_json(topology));
    log.info(fmt::format("topology: {}", path));
  } catch (const Error& error) {
    log.warning(fmt::format("the topology is not written (DDL_SAVE_TOPOLOGY): {}", error.what()));
  }
}

}  // namespace ddl
