#include "ddl/tools/plan_arguments.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <initializer_list>

#include "ddl/error.hpp"
#include "ddl/tools/command_line.hpp"
#include "topology/nearest_name.hpp"
#include "topology/parse_whole.hpp"

namespace ddl::tools {
namespace {

using topology::parse_whole;

constexpr std::array flags = {Flag{"--topology", true},
                              Flag{"--ranks", true},
                              Flag{"--bytes", true},
                              Flag{"--collective", true},
                              Flag{"--type", true},
                              Flag{"--wire", true},
                              Flag{"--root", true},
                              Flag{"--mode", true},
                              Flag{"--chunks", true},
                              Flag{"--placement", true},
                              Flag{"--device", true},
                              Flag{"--no-nccl"},
                              Flag{"--explain"},
                              Flag{"--carriers", true},
                              Flag{"--verify"},
                              Flag{"--simulate"},
                              Flag{"--candidates", true, 0, true},
                              Flag{"--limit", true},
                              Flag{"--jitter", true},
                              Flag{"--seed", true},
                              Flag{"--straggler", true},
                              Flag{"--plan", true},
                              Flag{"--save", true},
                              Flag{"--trace", true},
                              Flag{"--svg", true},
                              Flag{"--json"}};

constexpr int most_ranks = 1 << 24;

/// The flag's value, which must be one of `names`; the first of these if the flag is not given.
std::string one_of(const CommandLine& line, std::string_view flag,
                   const std::vector<std::string_view>& names) {
  const std::string text = line.value(flag, names.front());
  if (std::ranges::find(names, text) == names.end()) {
    throw UsageError(fmt::format("{}: found '{}', expected one of {}; the nearest is {}", flag, text,
                                 fmt::join(names, ", "), nearest_name(text, names)));
  }
  return text;
}

std::optional<std::string> optional_value(const CommandLine& line, std::string_view flag) {
  if (!line.has(flag)) return std::nullopt;
  if (line.value(flag).empty()) throw UsageError(fmt::format("{}: found nothing, expected a file", flag));
  return line.value(flag);
}

/// As one_of, for enumerators by their names.
template <typename Enum>
Enum named_one(const CommandLine& line, std::string_view flag, std::span<const Enum> all) {
  std::vector<std::string_view> names;
  for (const Enum value : all) names.push_back(to_string(value));
  const std::string text = one_of(line, flag, names);
  return all[topology::as_index(std::ranges::find(names, text) - names.begin())];
}

std::uint64_t parse_seed(const std::string& text) {
  if (const auto seed = parse_whole<std::uint64_t>(text)) return *seed;
  throw UsageError(fmt::format("--seed: found '{}', expected a whole number below 2^64", text));
}

/// Parses "3:2" or "3:2,5:1.5".
std::vector<topology::Straggler> parse_stragglers(const std::string& text) {
  std::vector<topology::Straggler> result;
  for (const std::string_view item : topology::split(text, ',')) {
    const std::size_t colon = item.find(':');
    const auto rank = parse_whole<int>(item.substr(0, colon));
    if (colon == std::string::npos || !rank || *rank < 0) {
      throw UsageError(fmt::format(
          "--straggler: found '{}', expected RANK:FACTOR, as in 3:2 for a rank 3 that takes twice as long "
          "(several: 3:2,5:1.5)",
          item));
    }
    result.push_back({*rank, parse_number("--straggler", item.substr(colon + 1), 1, 1e6), 0});
  }
  return result;
}

std::size_t parse_candidates(const std::string& text) {
  if (text.empty()) return 20;
  if (text == "all") return SIZE_MAX;
  const auto number = parse_whole<std::size_t>(text);
  if (number && *number > 0) return *number;
  throw UsageError(fmt::format("--candidates: found '{}', expected nothing, how many to list, or all", text));
}

void refuse_together(const CommandLine& line, std::string_view flag,
                     std::initializer_list<std::string_view> others, std::string_view why) {
  for (const std::string_view other : others) {
    if (line.has(flag) && line.has(other)) {
      throw UsageError(fmt::format("{} and {} do not go together: {}", flag, other, why));
    }
  }
}

}  // namespace

bool PlanArguments::standard_output_is_taken() const {
  return trace_file == "-" || svg_file == "-" || save_file == "-";
}

PlanArguments parse_plan_arguments(std::span<const std::string> arguments) {
  const CommandLine line = parse_flags(arguments, flags);
  refuse_together(line, "--plan",
                  {"--mode", "--chunks", "--type", "--wire", "--collective", "--bytes", "--no-nccl"},
                  "the plan file gives it");
  refuse_together(line, "--plan", {"--candidates"}, "a given plan is not chosen");
  refuse_together(line, "--topology", {"--device"}, "it says where ranks are on this machine");

  PlanArguments result;
  if (line.has("--topology")) {
    result.topology_source = line.value("--topology");
    result.topology = result.topology_source == "-" ? "standard input" : *result.topology_source;
  }
  result.device = one_of(line, "--device", {"auto", "cpu", "gpu"});
  if (line.has("--ranks")) result.ranks = line.integer("--ranks", 0, 1, most_ranks);
  result.round_robin = one_of(line, "--placement", {"by-host", "round-robin"}) == "round-robin";

  if (line.has("--carriers")) {
    result.carriers =
        read_for("--carriers", [&] { return topology::device_carriers_from(line.value("--carriers")); });
  }
  static constexpr std::array types = {DataType::f32, DataType::f64, DataType::f16, DataType::bf16,
                                       DataType::i32, DataType::i64, DataType::u8};
  result.request.collective = named_one(line, "--collective", topology::planned_collectives());
  result.request.type = named_one(line, "--type", std::span<const DataType>(types));
  static constexpr std::array wires = {DataType::bf16, DataType::f16};
  if (line.has("--wire")) result.request.wire = named_one(line, "--wire", std::span<const DataType>(wires));
  result.request.nccl = !line.has("--no-nccl");
  if (line.has("--chunks")) result.request.chunks = line.integer("--chunks", 1, 1, 64);
  result.root = line.integer("--root", 0, 0, most_ranks - 1);
  result.plan_file = optional_value(line, "--plan");
  if (line.has("--bytes")) result.bytes = parse_bytes("--bytes", line.value("--bytes"));
  if (!result.bytes && !result.plan_file) {
    throw UsageError("found no --bytes, expected the size of the buffer, as in --bytes 64M");
  }
  if (result.bytes) {
    result.request.bytes = *result.bytes;
    if (const std::size_t size = size_of(result.request.type); *result.bytes % size != 0) {
      throw UsageError(
          fmt::format("--bytes: found {}, expected a multiple of {}, the size of an element of {}",
                      *result.bytes, size, to_string(result.request.type)));
    }
  }
  result.mode_text = line.value("--mode", "p");
  result.request.mode = read_for("--mode", [&] {
    return topology::mode_from_letter(result.mode_text.substr(0, result.mode_text.find(':')));
  });

  result.explain = line.has("--explain");
  result.verify = line.has("--verify");
  result.simulate = line.has("--simulate");
  result.json = line.has("--json");
  result.lists_candidates = line.has("--candidates");
  result.candidates = parse_candidates(line.value("--candidates"));
  if (line.has("--limit")) result.most_transfers = parse_number("--limit", line.value("--limit"), 1, 1e12);
  result.simulation.jitter = parse_number("--jitter", line.value("--jitter", "0"), 0, 1e3);
  result.simulation.seed = parse_seed(line.value("--seed", "1"));
  if (line.has("--straggler")) result.simulation.stragglers = parse_stragglers(line.value("--straggler"));
  if (result.simulation.jitter > 0) {
    result.simulation_conditions =
        fmt::format("jitter {}, seed {}", result.simulation.jitter, result.simulation.seed);
  }
  if (line.has("--straggler")) {
    result.simulation_conditions += fmt::format(
        "{}stragglers {}", result.simulation_conditions.empty() ? "" : ", ", line.value("--straggler"));
  }
  result.trace_file = optional_value(line, "--trace");
  result.svg_file = optional_value(line, "--svg");
  result.save_file = optional_value(line, "--save");
  const bool simulates = result.simulate || result.explain || result.json || result.trace_file ||
                         result.svg_file || result.lists_candidates;
  if (!result.simulation_conditions.empty() && !simulates) {
    throw UsageError("--jitter and --straggler change the simulation: add --simulate");
  }
  const int outputs = (result.trace_file == "-") + (result.svg_file == "-") + (result.save_file == "-") +
                      (result.json ? 1 : 0);
  if (outputs > 1) {
    throw UsageError(
        "found several of --json, --trace -, --svg - and --save -, expected at most one on standard output");
  }
  return result;
}

}  // namespace ddl::tools
