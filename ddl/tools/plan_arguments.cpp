#include "ddl/tools/plan_arguments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "ddl/error.hpp"
#include "ddl/nearest_name.hpp"
#include "ddl/tools/command_line.hpp"
#include "ddl/tools/plan_units.hpp"

namespace ddl::tools {
namespace {

constexpr std::array flags = {Flag{"--topology", true},
                              Flag{"--ranks", true},
                              Flag{"--bytes", true},
                              Flag{"--collective", true},
                              Flag{"--type", true},
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

std::string one_of(const CommandLine& line, std::string_view flag, std::span<const std::string_view> names) {
  const std::string text = line.value(flag, names.front());
  if (std::ranges::find(names, text) == names.end()) {
    std::string list;
    for (const std::string_view name : names) list += fmt::format("{}{}", list.empty() ? "" : ", ", name);
    throw UsageError(fmt::format("{}: found '{}', expected one of {}; the nearest is {}", flag, text, list,
                                 nearest_name(text, names)));
  }
  return text;
}

std::optional<std::string> optional_value(const CommandLine& line, std::string_view flag) {
  if (!line.has(flag)) return std::nullopt;
  if (line.value(flag).empty()) throw UsageError(fmt::format("{}: found nothing, expected a file", flag));
  return line.value(flag);
}

/// One of the enumerators, by its name; the first one unless given.
template <typename Enum>
Enum named_one(const CommandLine& line, std::string_view flag, std::span<const Enum> all) {
  std::vector<std::string_view> names;
  for (const Enum value : all) names.push_back(to_string(value));
  const std::string text = one_of(line, flag, names);
  return all[static_cast<std::size_t>(std::ranges::find(names, text) - names.begin())];
}

DataType parse_type(const CommandLine& line) {
  static constexpr std::array types = {DataType::f32, DataType::f64, DataType::f16, DataType::bf16,
                                       DataType::i32, DataType::i64, DataType::u8};
  return named_one(line, "--type", std::span<const DataType>(types));
}

std::uint64_t parse_seed(const std::string& text) {
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw UsageError(fmt::format("--seed: found '{}', expected a whole number below 2^64", text));
  }
  return seed;
}

/// "3:2" or "3:2,5:1.5".
std::vector<topology::Straggler> parse_stragglers(const std::string& text) {
  std::vector<topology::Straggler> result;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t colon = item.find(':');
    int rank = -1;
    const char* const last = item.data() + std::min(colon, item.size());
    const auto [rest, error] = std::from_chars(item.data(), last, rank);
    if (colon == std::string::npos || error != std::errc{} || rest != last || rank < 0) {
      throw UsageError(fmt::format(
          "--straggler: found '{}', expected RANK:FACTOR, as in 3:2 for a rank 3 that takes twice as long "
          "(several: 3:2,5:1.5)",
          item));
    }
    result.push_back({rank, parse_number("--straggler", item.substr(colon + 1), 1, 1e6), 0});
  }
  return result;
}

std::size_t parse_candidates(const std::string& text) {
  if (text.empty()) return 20;
  if (text == "all") return SIZE_MAX;
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number == 0) {
    throw UsageError(
        fmt::format("--candidates: found '{}', expected nothing, how many to list, or all", text));
  }
  return number;
}

void refuse_together(const CommandLine& line, std::string_view flag, std::span<const std::string_view> others,
                     std::string_view why) {
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
  constexpr std::array<std::string_view, 6> of_the_file = {"--mode",       "--chunks", "--type",
                                                           "--collective", "--bytes",  "--no-nccl"};
  refuse_together(line, "--plan", of_the_file, "the file says it");
  constexpr std::array<std::string_view, 1> candidates = {"--candidates"};
  refuse_together(line, "--plan", candidates, "a given plan is not chosen");
  constexpr std::array<std::string_view, 1> device = {"--device"};
  refuse_together(line, "--topology", device, "it says where ranks are on this machine");

  PlanArguments result;
  if (line.has("--topology")) {
    result.topology_source = line.value("--topology");
    result.topology = result.topology_source == "-" ? "standard input" : *result.topology_source;
  }
  constexpr std::array<std::string_view, 3> devices = {"auto", "cpu", "gpu"};
  result.device = one_of(line, "--device", devices);
  if (line.has("--ranks")) result.ranks = line.integer("--ranks", 0, 1, most_ranks);
  constexpr std::array<std::string_view, 2> placements = {"by-host", "round-robin"};
  result.round_robin = one_of(line, "--placement", placements) == "round-robin";

  if (line.has("--carriers")) {
    try {
      result.carriers = topology::device_carriers_from(line.value("--carriers"));
    } catch (const Error& error) {
      throw UsageError(fmt::format("--carriers: {}", error.what()));
    }
  }

  const auto planned = topology::planned_collectives();
  result.request.collective = named_one(line, "--collective", planned);
  result.request.type = parse_type(line);
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
  try {
    result.request.mode = topology::mode_from_letter(result.mode_text.substr(0, result.mode_text.find(':')));
  } catch (const Error& error) {
    throw UsageError(fmt::format("--mode: {}", error.what()));
  }

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
