// ddl-topo: shows, converts, measures and checks topologies and hosts.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <optional>

#include "ddl/options.hpp"
#include "ddl/tools/command_line.hpp"
#include "ddl/tools/topo_commands.hpp"
#include "ddl/topology/discovery.hpp"
#include "topology/text.hpp"

namespace ddl::tools {
namespace {

constexpr std::string_view help =
    R"(ddl-topo: how hosts, packages, GPUs or CPU ranks and NICs are wired

  ddl-topo show                            this machine: a tree of each host, the network, and a matrix of
                                           the routes between devices
  ddl-topo show --ranks 4                  this machine with 4 ranks on it
  ddl-topo show --topology ac922:4         four IBM AC922
  ddl-topo show --topology ethernet:4x8@100gbit
  ddl-topo show --topology cluster.json    a file; --json prints JSON
  ddl-topo presets                         the presets
  ddl-topo export ac922:4 -o cluster.json  to a file to edit; its schema is in topology/README.md
  ddl-topo import node0.xml node1.xml -o cluster.json
                                           NCCL's topology files (NCCL_TOPO_DUMP_FILE), one per host
  ddl-topo export this --host -o $(hostname).json
  ddl-topo import host0.json host1.json -o cluster.json
                                           a cluster: describe each host on that host, then join the files
  ddl-topo probe --ranks 2                 measures latency and bandwidth between ranks, here in one process,
  mpirun -n 4 ddl-topo probe               or between the ranks of a job; kept for later jobs
  ddl-topo check --program ./train --port 29500
                                           the check that ddlrun runs on each host, as a line of JSON
  ddl-topo env                             every option of a job: its value, and where that comes from

Commands
  show [--topology NAME|FILE|-] [--json] [--matrix]
  presets
  export NAME|FILE|-|this [--host] [-o FILE]
  import FILE... [-o FILE]
  probe [--ranks N] [--json] [--dry-run]
  check [--program PATH] [--port N]
  env

Options
  --topology NAME|FILE|-  a preset, a file, or standard input (default: this machine)
  --json                  JSON instead of text
  --matrix                the whole matrix, however many devices there are
  --host                  with `export this`: a description of this host for `import`, not a topology
  -o, --output FILE       write to this file instead of standard output
  --ranks N               ranks on each host that is discovered or described (default: one per GPU, or per core)
  --device auto|cpu|gpu   where those ranks are; auto: on GPUs if every host has one
  --dry-run               measure, but keep nothing
  --program PATH          a program that this host should have; a name without / is searched on PATH
  --port N                a TCP port that should be free here
  -h, --help

Bandwidths are GB/s (1e9 bytes) in one direction, latencies us one way. For links of this machine they are nominal
values by kind, width and speed; `probe` measures them for each kind of route: inside a package, between packages
of a host, between hosts. It keeps the results in $DDL_CACHE_DIR, $XDG_CACHE_HOME/ddl or ~/.cache/ddl under the
topology's hash, and jobs with that topology choose their plans by them (unless DDL_PROBE=off; DDL_PROBE=on
measures while a job starts).
The exit status is 0, 2 if the command line is wrong, and 1 if another error occurs.
)";

Placement placement_of(const CommandLine& line) {
  Placement placement;
  placement.ranks = line.integer("--ranks", 0, 1, 65'536);
  line.read("--device", placement.device, {{"auto", "auto"}, {"cpu", "cpu"}, {"gpu", "gpu"}});
  return placement;
}

std::string output_of(const CommandLine& line) { return line.value("--output", "-"); }

void tell(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) fmt::print(stderr, "ddl-topo: note: {}\n", note);
}

void show(const CommandLine& line) {
  std::vector<std::string> notes;
  const std::string name = line.value("--topology", "this machine");
  const topology::Topology topology = line.has("--topology") ? named_topology(name, placement_of(line))
                                                             : this_machine(placement_of(line), notes);
  const std::string title = name == "-" ? "standard input" : name;
  write_text("-",
             line.has("--json") ? to_json(topology) : topology_text(topology, title, line.has("--matrix")));
  tell(notes);
}

void list_presets(const CommandLine& /*line*/) { write_text("-", presets_text()); }

void export_topology(const CommandLine& line) {
  const std::string& name = line.words.front();
  std::vector<std::string> notes;
  if (line.has("--host")) {
    if (name != "this") refuse_usage("--host goes with `export this`; found '{}'", name);
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

void import_topology(const CommandLine& line) {
  if (line.words.empty()) throw UsageError("import: found no file, expected at least one");
  write_text(output_of(line), to_json(import_files(line.words, placement_of(line))));
}

void probe(const CommandLine& line) {
  const std::optional<ProbeResult> result =
      probe_ways(line.integer("--ranks", 0, 2, 1024), !line.has("--dry-run"));
  if (!result) return;
  write_text("-",
             line.has("--json") ? to_json(result->measurements, *result->topology) : probe_text(*result));
  tell(result->notes);
}

void check(const CommandLine& line) {
  write_text("-", host_check_json(line.value("--program"), line.integer("--port", 0, 1, 65'535)));
}

std::string or_dash(const std::string& text) { return text.empty() ? "-" : text; }

std::string given_by(const OptionSetting& setting) {
  if (setting.word.empty()) return setting.variable;
  if (setting.variable.empty()) return fmt::format("DDL_OPTIONS=\"{} ...\"", setting.word);
  return fmt::format("{} or DDL_OPTIONS=\"{} ...\"", setting.variable, setting.word);
}

void list_options(const CommandLine& /*line*/) {
  const std::vector<OptionSetting> settings = option_settings();
  std::size_t widest_name = 0;
  std::size_t widest_value = 0;
  for (const OptionSetting& setting : settings) {
    widest_name = std::max(widest_name, setting.name.size());
    widest_value = std::max(widest_value, setting.value.size());
  }
  std::string text =
      "Later sources override earlier ones: defaults, variables, DDL_OPTIONS, a program's flags.\n\n";
  for (const OptionSetting& setting : settings) {
    text += fmt::format("{:<{}}  {:<{}}  from {}\n", setting.name, widest_name, or_dash(setting.value),
                        widest_value, setting.origin);
    text += fmt::format("  {}\n  by {}: {}; default {}\n", setting.help, given_by(setting), setting.expected,
                        or_dash(setting.default_value));
  }
  write_text("-", text);
}

struct Command {
  std::string_view name;
  void (*run)(const CommandLine&);
  std::vector<Flag> flags;
  std::size_t words = 0;  ///< Expected number of words; SIZE_MAX: any number.
  std::string_view what_words = "none";
};

int run(const std::vector<std::string>& arguments) {
  const Flag json{"--json"}, output{"--output", true, 'o'}, ranks{"--ranks", true}, device{"--device", true};
  const std::vector<Command> commands = {
      {"show",
       show,
       {{"--topology", true}, json, {"--matrix"}, ranks, device},
       0,
       "none: a topology is given with --topology"},
      {"presets", list_presets, {}},
      {"export",
       export_topology,
       {{"--host"}, output, ranks, device},
       1,
       "one: a preset's name, a file, - or this"},
      {"import", import_topology, {output, ranks, device}, SIZE_MAX},
      {"probe", probe, {ranks, json, {"--dry-run"}}},
      {"check", check, {{"--program", true}, {"--port", true}}},
      {"env", list_options, {}},
  };
  if (arguments.empty()) {
    throw UsageError("found no command, expected show, presets, export, import, probe, check or env");
  }
  const auto command = std::ranges::find(commands, arguments.front(), &Command::name);
  if (command == commands.end()) {
    std::vector<std::string_view> names;
    for (const Command& known : commands) names.push_back(known.name);
    refuse_usage("unknown command '{}'; the nearest is {}", arguments.front(),
                 nearest_name(arguments.front(), names));
  }
  const CommandLine line = parse_command_line(std::span(arguments).subspan(1), command->flags);
  if (command->words != SIZE_MAX && line.words.size() != command->words) {
    refuse_usage("{}: found {}, expected {}", command->name, count_text(line.words.size(), "argument"),
                 command->what_words);
  }
  command->run(line);
  return 0;
}

}  // namespace
}  // namespace ddl::tools

int main(int argc, char** argv) {
  return ddl::tools::main_of("ddl-topo", ddl::tools::help, argc, argv, ddl::tools::run,
                             ddl::tools::Failures::usage_errors);
}
