// ddl-topo: shows, converts and describes topologies.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>

#include "ddl/error.hpp"
#include "ddl/nearest_name.hpp"
#include "ddl/tools/command_line.hpp"
#include "ddl/tools/topo_commands.hpp"
#include "ddl/topology/discovery.hpp"

namespace ddl::tools {
namespace {

constexpr std::string_view help =
    R"(ddl-topo: what is wired to what - hosts, packages, GPUs or CPU ranks, NICs, and the links between

  ddl-topo show                            this machine: a tree of each host, the network, and a matrix of
                                           the ways between devices
  ddl-topo show --ranks 4                  this machine with 4 ranks on it
  ddl-topo show --topology ac922:4         four IBM AC922 that are not there
  ddl-topo show --topology ethernet:4x8@100gbit
  ddl-topo show --topology cluster.json    a file; --json prints JSON
  ddl-topo presets                         the machines that have a name
  ddl-topo export ac922:4 -o cluster.json  to a file to edit; its schema is in topology/README.md
  ddl-topo import node0.xml node1.xml -o cluster.json
                                           NCCL's topology files (NCCL_TOPO_DUMP_FILE), one a host
  ddl-topo export this --host -o $(hostname).json
  ddl-topo import host0.json host1.json -o cluster.json
                                           a cluster: describe each host on itself, then join them
  ddl-topo probe --ranks 2                 how fast bytes really go from rank to rank, here in one process,
  mpirun -n 4 ddl-topo probe               or between the ranks of a job; kept for the jobs that follow
  ddl-topo check --program ./train --port 29500
                                           what ddlrun asks each host before a job, as a line of JSON
  ddl-topo env                             every option of a job: its value, and where that comes from

Commands
  show [--topology NAME|FILE|-] [--json] [--matrix]
  presets [--json]
  export NAME|FILE|-|this [--host] [-o FILE]
  import FILE... [-o FILE]
  probe [--ranks N] [--json] [--dry-run]
  check [--program PATH] [--port N]
  env [--json]

Options
  --topology NAME|FILE|-  a preset, a file, or standard input; without it this machine
  --json                  JSON instead of text
  --matrix                the whole matrix, however many devices there are
  --host                  with `export this`: what this host is, not yet a topology
  -o, --output FILE       write to this file instead of standard output
  --ranks N               ranks on each host that is discovered or described: one on each GPU, or on each core,
                          unless given
  --device auto|cpu|gpu   where those ranks are; auto: on GPUs if every host has one
  --dry-run               measure, and keep nothing
  --program PATH          a program that this host should have; a name without / is looked for on PATH
  --port N                a TCP port that should be free here
  -h, --help

Bandwidths are GB/s (1e9 bytes) in one direction, latencies us one way. For links of this machine they are
what their kind, width and speed promise; `probe` measures them for each kind of way: inside a package, between
packages of a host, between hosts. It keeps the figures in $DDL_CACHE_DIR, $XDG_CACHE_HOME/ddl or ~/.cache/ddl
under the topology's hash, and jobs with that topology choose their plans by them (unless DDL_PROBE=off;
DDL_PROBE=on measures while a job starts).
Ends with 0, with 2 if the command line is wrong, and with 1 if anything else is.
)";

constexpr std::array<std::string_view, 7> commands = {"show",  "presets", "export", "import",
                                                      "probe", "check",   "env"};

Placement placement_of(const CommandLine& line) {
  Placement placement;
  placement.ranks = line.integer("--ranks", 0, 1, 65'536);
  placement.device = line.value("--device", "auto");
  if (placement.device != "auto" && placement.device != "cpu" && placement.device != "gpu") {
    throw UsageError(fmt::format("--device: found '{}', expected auto, cpu or gpu", placement.device));
  }
  return placement;
}

std::string output_of(const CommandLine& line) { return line.value("--output", "-"); }

void tell(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) fmt::print(stderr, "ddl-topo: note: {}\n", note);
}

void expect_words(const CommandLine& line, std::string_view command, std::size_t number,
                  std::string_view what) {
  if (line.words.size() == number) return;
  throw UsageError(fmt::format("{}: found {} argument{}, expected {}", command, line.words.size(),
                               line.words.size() == 1 ? "" : "s", what));
}

void show(std::span<const std::string> arguments) {
  constexpr std::array flags = {Flag{"--topology", true}, Flag{"--json"}, Flag{"--matrix"},
                                Flag{"--ranks", true}, Flag{"--device", true}};
  const CommandLine line = parse_command_line(arguments, flags);
  expect_words(line, "show", 0, "none: a topology is given with --topology");
  std::vector<std::string> notes;
  const std::string name = line.value("--topology", "this machine");
  const topology::Topology topology = line.has("--topology") ? named_topology(name, placement_of(line))
                                                             : this_machine(placement_of(line), notes);
  const std::string title = name == "-" ? "standard input" : name;
  write_text("-",
             line.has("--json") ? to_json(topology) : topology_text(topology, title, line.has("--matrix")));
  tell(notes);
}

void list_presets(std::span<const std::string> arguments) {
  constexpr std::array flags = {Flag{"--json"}};
  const CommandLine line = parse_command_line(arguments, flags);
  expect_words(line, "presets", 0, "none");
  if (!line.has("--json")) {
    write_text("-", presets_text());
    return;
  }
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const topology::Preset& preset : topology::presets()) {
    list.push_back({{"name", preset.name},
                    {"description", preset.description},
                    {"devices_per_host", preset.devices_per_host}});
  }
  write_text("-", list.dump(2) + "\n");
}

void export_topology(std::span<const std::string> arguments) {
  constexpr std::array flags = {Flag{"--host"}, Flag{"--output", true, 'o'}, Flag{"--ranks", true},
                                Flag{"--device", true}};
  const CommandLine line = parse_command_line(arguments, flags);
  expect_words(line, "export", 1, "one: a preset's name, a file, - or this");
  const std::string& name = line.words.front();
  std::vector<std::string> notes;
  if (line.has("--host")) {
    if (name != "this") throw UsageError(fmt::format("--host goes with `export this`; found '{}'", name));
    if (line.has("--ranks") || line.has("--device")) {
      throw UsageError("--host describes the machine without ranks: give --ranks and --device to `import`");
    }
    write_text(output_of(line), to_json(topology::discover_host()));
    return;
  }
  const topology::Topology topology =
      name == "this" ? this_machine(placement_of(line), notes) : named_topology(name, placement_of(line));
  write_text(output_of(line), to_json(topology));
  tell(notes);
}

void import_topology(std::span<const std::string> arguments) {
  constexpr std::array flags = {Flag{"--output", true, 'o'}, Flag{"--ranks", true}, Flag{"--device", true}};
  const CommandLine line = parse_command_line(arguments, flags);
  if (line.words.empty()) throw UsageError("import: found no file, expected at least one");
  write_text(output_of(line), to_json(import_files(line.words, placement_of(line))));
}

void probe(std::span<const std::string> arguments) {
  constexpr std::array flags = {Flag{"--ranks", true}, Flag{"--json"}, Flag{"--dry-run"}};
  const CommandLine line = parse_command_line(arguments, flags);
  expect_words(line, "probe", 0, "none");
  ProbeRequest request;
  request.ranks = line.integer("--ranks", 0, 2, 1024);
  request.keep = !line.has("--dry-run");
  const std::optional<ProbeResult> result = probe_ways(request);
  if (!result) return;
  write_text("-",
             line.has("--json") ? to_json(result->measurements, *result->topology) : probe_text(*result));
  tell(result->notes);
}

void check(std::span<const std::string> arguments) {
  constexpr std::array flags = {Flag{"--program", true}, Flag{"--port", true}};
  const CommandLine line = parse_command_line(arguments, flags);
  expect_words(line, "check", 0, "none");
  write_text("-", host_check_json({line.value("--program"), line.integer("--port", 0, 1, 65'535)}));
}

void list_options(std::span<const std::string> arguments) {
  constexpr std::array flags = {Flag{"--json"}};
  const CommandLine line = parse_command_line(arguments, flags);
  expect_words(line, "env", 0, "none");
  write_text("-", line.has("--json") ? option_list_json() : option_list_text());
}

void run(std::span<const std::string> arguments) {
  if (arguments.empty()) {
    throw UsageError("found no command, expected show, presets, export, import, probe, check or env");
  }
  const std::string& command = arguments.front();
  const bool asks_for_help =
      command == "help" || std::ranges::any_of(arguments, [](const std::string& argument) {
        return argument == "--help" || argument == "-h";
      });
  if (asks_for_help) return write_text("-", std::string(help));
  const std::span<const std::string> rest = arguments.subspan(1);
  if (command == "show") return show(rest);
  if (command == "presets") return list_presets(rest);
  if (command == "export") return export_topology(rest);
  if (command == "import") return import_topology(rest);
  if (command == "probe") return probe(rest);
  if (command == "check") return check(rest);
  if (command == "env") return list_options(rest);
  throw UsageError(
      fmt::format("unknown command '{}'; the nearest is {}", command, nearest_name(command, commands)));
}

}  // namespace
}  // namespace ddl::tools

int main(int argc, char** argv) {
  try {
    ddl::tools::run(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
    return 0;
  } catch (const ddl::tools::UsageError& error) {
    fmt::print(stderr, "ddl-topo: {}\nddl-topo --help shows how it is used.\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "ddl-topo: {}\n", error.what());
    return 1;
  }
}
