#include "ddl/tools/plan_arguments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <limits>

#include "topology/text.hpp"

namespace ddl::tools {
namespace {

std::vector<Flag> all_flags() {
  std::vector<Flag> flags;
  for (const char* name :
       {"--topology",   "--ranks",  "--bytes",     "--collective", "--type",     "--wire",  "--root",
        "--mode",       "--chunks", "--placement", "--device",     "--carriers", "--limit", "--jitter",
        "--candidates", "--seed",   "--straggler", "--plan",       "--save",     "--dot"}) {
    flags.push_back({name, true});
  }
  for (const char* name : {"--no-nccl", "--explain", "--verify", "--simulate", "--json"})
    flags.push_back({name});
  return flags;
}

constexpr int most_ranks = 1 << 24;
constexpr std::uint64_t most_bytes = std::uint64_t{1} << 40;

/// Reads an enumerator by its name.
template <typename Enum>
void read(const CommandLine& line, std::string_view flag, auto& to, std::span<const Enum> all) {
  std::vector<std::pair<std::string_view, Enum>> choices;
  for (const Enum value : all) choices.emplace_back(to_string(value), value);
  if (!line.has(flag)) return;
  Enum chosen = all.front();
  line.read(flag, chosen, choices);
  to = chosen;
}

/// Parses "3:2" or "3:2,5:1.5".
std::vector<topology::Straggler> parse_stragglers(const std::string& text) {
  std::vector<topology::Straggler> result;
  for (const std::string_view item : split(text, ',')) {
    const std::size_t colon = item.find(':');
    const auto rank = parse_whole<int>(item.substr(0, colon));
    if (colon == std::string::npos || !rank || *rank < 0) {
      refuse_usage(
          "--straggler: found '{}', expected RANK:FACTOR, as in 3:2 for a rank 3 that takes twice as long "
          "(several: 3:2,5:1.5)",
          item);
    }
    result.push_back({*rank, parse_number("--straggler", item.substr(colon + 1), 1, 1e6), 0});
  }
  return result;
}

std::size_t parse_candidates(const std::string& text) {
  if (text == "all") return SIZE_MAX;
  const auto number = parse_whole<std::size_t>(text);
  if (number && *number > 0) return *number;
  refuse_usage("--candidates: found '{}', expected how many to list, or all", text);
}

void refuse_together(const CommandLine& line, std::string_view flag,
                     std::initializer_list<std::string_view> others, std::string_view why) {
  for (const std::string_view other : others) {
    if (line.has(flag) && line.has(other)) {
      refuse_usage("{} and {} do not go together: {}", flag, other, why);
    }
  }
}

}  // namespace

PlanArguments parse_plan_arguments(std::span<const std::string> arguments) {
  PlanArguments result;
  const CommandLine& line = result.line = parse_flags(arguments, all_flags());
  refuse_together(line, "--plan",
                  {"--mode", "--chunks", "--type", "--wire", "--collective", "--bytes", "--no-nccl"},
                  "the plan file gives it");
  refuse_together(line, "--plan", {"--candidates"}, "a given plan is not chosen");
  refuse_together(line, "--topology", {"--device"}, "it says where ranks are on this machine");

  const std::string source = line.value("--topology", result.topology);
  result.topology = source == "-" ? "standard input" : source;
  line.read("--device", result.device, {{"auto", "auto"}, {"cpu", "cpu"}, {"gpu", "gpu"}});
  if (line.has("--ranks")) result.ranks = line.integer("--ranks", 0, 1, most_ranks);
  line.read("--placement", result.round_robin, {{"by-host", false}, {"round-robin", true}});

  if (line.has("--carriers")) {
    result.carriers =
        read_for("--carriers", [&] { return topology::device_carriers_from(line.value("--carriers")); });
  }
  static constexpr std::array types = {DataType::f32, DataType::f64, DataType::f16, DataType::bf16,
                                       DataType::i32, DataType::i64, DataType::u8};
  read(line, "--collective", result.request.collective, topology::planned_collectives());
  read(line, "--type", result.request.type, std::span<const DataType>(types));
  static constexpr std::array wires = {DataType::bf16, DataType::f16};
  read(line, "--wire", result.request.wire, std::span<const DataType>(wires));
  result.request.nccl = !line.has("--no-nccl");
  if (line.has("--chunks")) result.request.chunks = line.integer("--chunks", 1, 1, 64);
  result.root = line.integer("--root", 0, 0, most_ranks - 1);
  for (const std::string_view flag : {"--plan", "--dot", "--save"}) {
    const std::string file = line.value(flag, "given");
    if (file.empty() || (file == "-" && flag != "--plan")) {
      refuse_usage("{}: found '{}', expected a file", flag, file);
    }
  }
  if (!line.has("--bytes") && !line.has("--plan")) {
    throw UsageError("found no --bytes, expected the size of the buffer, as in --bytes 64M");
  }
  if (line.has("--bytes")) {
    line.read("--bytes", result.request.bytes, 1, most_bytes);
    const std::uint64_t bytes = result.request.bytes;
    if (const std::size_t size = size_of(result.request.type); bytes % size != 0) {
      refuse_usage("--bytes: found {}, expected a multiple of {}, the size of an element of {}", bytes, size,
                   to_string(result.request.type));
    }
  }
  result.mode_text = line.value("--mode", "p");
  result.request.mode = read_for("--mode", [&] {
    return topology::mode_from_letter(result.mode_text.substr(0, result.mode_text.find(':')));
  });

  result.candidates = parse_candidates(line.value("--candidates", "all"));
  if (line.has("--limit")) result.most_transfers = parse_number("--limit", line.value("--limit"), 1, 1e12);
  result.simulation.jitter = parse_number("--jitter", line.value("--jitter", "0"), 0, 1e3);
  result.simulation.seed =
      static_cast<std::uint64_t>(line.integer("--seed", 1, 0, std::numeric_limits<int>::max()));
  if (line.has("--straggler")) result.simulation.stragglers = parse_stragglers(line.value("--straggler"));
  const bool simulates =
      std::ranges::any_of(std::array{"--simulate", "--explain", "--json", "--dot", "--candidates"},
                          [&](std::string_view flag) { return line.has(flag); });
  if ((result.simulation.jitter > 0 || line.has("--straggler")) && !simulates) {
    throw UsageError("--jitter and --straggler change the simulation: add --simulate");
  }
  return result;
}

}  // namespace ddl::tools
