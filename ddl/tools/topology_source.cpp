#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "ddl/context/connect.hpp"
#include "ddl/files/durable_file.hpp"
#include "ddl/tools/command_line.hpp"
#include "ddl/tools/topo_commands.hpp"
#include "ddl/topology/discovery.hpp"
#include "topology/refuse.hpp"
#include "topology/text.hpp"

namespace ddl::tools {
namespace {

using topology::HostDescription;
using topology::NodeKind;
using topology::Topology;

void write_to(std::ostream& stream, const std::string& name, const std::string& text) {
  if (!stream.write(text.data(), static_cast<std::streamsize>(text.size())).flush()) {
    throw_io("write", name, errno);
  }
}

std::string shown_name(const std::string& path) { return path == "-" ? "standard input" : path; }

enum class Format { topology, nccl_xml, host_description };

Format format_of(std::string_view text) {
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  if (start != std::string_view::npos && text[start] == '<') return Format::nccl_xml;
  // A host description begins with this key.
  return text.find("\"host_description\"") != std::string_view::npos ? Format::host_description
                                                                     : Format::topology;
}

std::string_view to_string(Format format) {
  if (format == Format::nccl_xml) return "NCCL's XML";
  return format == Format::host_description ? "a host description" : "a topology";
}

Topology place_ranks(std::span<const HostDescription> hosts, const Placement& placement) {
  const bool all_have_gpus =
      std::ranges::all_of(hosts, [](const HostDescription& host) { return !host.gpus.empty(); });
  const bool on_gpus = placement.device == "gpu" || (placement.device == "auto" && all_have_gpus);
  std::vector<int> host_of_rank;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    std::size_t ranks = as_index(placement.ranks);
    if (ranks == 0 && on_gpus) ranks = hosts[i].gpus.size();
    if (ranks == 0 && !on_gpus) {
      for (const auto& package : hosts[i].packages) ranks += as_index(package.cores);
    }
    host_of_rank.insert(host_of_rank.end(), ranks, static_cast<int>(i));
  }
  if (host_of_rank.empty()) topology::refuse("found no GPU, expected at least one");
  return topology::merge(hosts, host_of_rank, on_gpus ? NodeKind::gpu : NodeKind::cpu);
}

}  // namespace

std::string read_text(const std::string& path) {
  constexpr std::uint64_t largest_text = std::uint64_t{256} << 20;
  if (path != "-") return read_file(path, largest_text, "a topology");
  std::string text;
  for (char byte = 0; text.size() <= largest_text && std::cin.get(byte);) text += byte;
  if (std::cin.bad()) throw_io("read", "standard input", errno);
  if (text.size() > largest_text) throw_corrupt("standard input", "more than 256 MiB", "a topology");
  return text;
}

void write_text(const std::string& path, const std::string& text) {
  if (path == "-") return write_to(std::cout, "standard output", text);
  std::error_code error;
  // Resolves links, so that their target is replaced instead of the link itself.
  std::filesystem::path target = std::filesystem::weakly_canonical(path, error);
  if (error) target = path;
  if (std::filesystem::exists(target, error) && !std::filesystem::is_regular_file(target, error)) {
    // Writes to a device or pipe directly, because a file must not replace it.
    std::ofstream file(target);
    return write_to(file, path, text);
  }
  AtomicFileWriter file(target);
  file.write(text);
  file.finish();
}

Topology this_machine(const Placement& placement, std::vector<std::string>& notes) {
  const HostDescription host = topology::discover_host();
  notes = host.notes;
  return place_ranks(std::span(&host, 1), placement);
}

Topology import_files(std::span<const std::string> paths, const Placement& placement) {
  std::vector<std::string> texts;
  std::vector<std::string> names;
  for (const std::string& path : paths) {
    texts.push_back(read_text(path));
    names.push_back(shown_name(path));
    if (const Format first = format_of(texts.front()); format_of(texts.back()) != first) {
      topology::refuse("{}: found {}, expected {} as in {}: files of one kind go together", names.back(),
                       to_string(format_of(texts.back())), to_string(first), names.front());
    }
  }
  const Format format = format_of(texts.front());
  if (format == Format::nccl_xml) return topology::topology_from_nccl_xml(texts, names);
  if (format == Format::host_description) {
    std::vector<HostDescription> hosts;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      hosts.push_back(topology::host_description_from_json(texts[i], names[i]));
    }
    return place_ranks(hosts, placement);
  }
  if (texts.size() > 1) {
    topology::refuse(
        "{}: found a second topology, expected just one: what can be joined are NCCL's XMLs, "
        "or host descriptions (ddl-topo export this --host)",
        names[1]);
  }
  return topology::topology_from_json(texts[0], names[0]);
}

Topology named_topology(const std::string& name, const Placement& placement) {
  const bool is_file =
      name == "-" || name.find('/') != std::string::npos || name.ends_with(".json") || name.ends_with(".xml");
  if (!is_file) {
    try {
      if (auto preset = topology_of_preset("topology", name)) return *std::move(preset);
    } catch (const Error& error) {
      throw UsageError(error.what());
    }
  }
  return import_files(std::span(&name, 1), placement);
}

}  // namespace ddl::tools
