#include "ddl/options/option_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "ddl/files/durable_file.hpp"
#include "topology/json_text.hpp"
#include "topology/refuse.hpp"
#include "topology/text.hpp"

namespace ddl {
namespace {

using O = ContextOptions;
using Text = std::string_view;

/// Parses all of `text` as a number from `least` to `most`; false if it is none.
template <typename T>
bool parse(Text text, T& value, T least, T most) {
  if (std::is_integral_v<T> && text.size() > 1 && text.front() == '0') return false;
  const auto read = parse_whole<T>(text);
  if (!read || !(*read >= least && *read <= most)) return false;
  value = *read;
  return true;
}

/// A text option that is one member of ContextOptions.
template <std::string O::*Member>
constexpr Option::Value name_in{[](O& o, Text text) {
                                  o.*Member = text;
                                  return !text.empty();
                                },
                                [](const O& o) { return o.*Member; }};

/// An integer option from `least` to `most`.
template <auto Member, std::int64_t least, std::int64_t most>
constexpr Option::Value number_in{[](O& o, Text text) {
                                    std::int64_t number = 0;
                                    if (!parse(text, number, least, most)) return false;
                                    o.*Member =
                                        static_cast<std::remove_reference_t<decltype(o.*Member)>>(number);
                                    return true;
                                  },
                                  [](const O& o) { return fmt::format("{:d}", o.*Member); }};

/// An enumeration option; `names` are in the order of the enumerators.
template <auto Member, const auto& names>
constexpr Option::Value choice_in{
    [](O& o, Text text) {
      const auto found = std::ranges::find(names, text);
      if (found == names.end()) return false;
      o.*Member = static_cast<std::remove_reference_t<decltype(o.*Member)>>(found - names.begin());
      return true;
    },
    [](const O& o) { return std::string(names[as_index(o.*Member)]); }};

constexpr std::array<Text, 3> network_names = {"auto", "ucx", "mpi"};
constexpr std::array<Text, 3> probe_names = {"off", "cached", "on"};

/// Reads a mode and an optional grid of workers, as in "p:4x8". The grid is checked against the job later,
/// when the number of ranks is known.
bool set_mode(O& o, Text text) {
  const std::size_t colon = text.find(':');
  o.mode = topology::mode_from_letter(text.substr(0, colon));
  o.decomposition.clear();
  if (colon == Text::npos) return true;
  o.decomposition = text.substr(colon + 1);
  const bool is_grid =
      !o.decomposition.empty() && o.decomposition.find_first_not_of("0123456789x,") == std::string::npos;
  if (is_grid) return true;
  fail_with(ErrorCode::invalid_argument,
            "found {} after the colon, expected the sizes of dimensions, as in p:4x8",
            topology::in_quotes(o.decomposition));
}
std::string mode_of(const O& o) {
  const std::string letter(1, letter_of(o.mode));
  return o.decomposition.empty() ? letter : letter + ":" + o.decomposition;
}

/// `names`: file names separated by commas.
bool set_plans(O& o, Text names) {
  constexpr std::uint64_t largest_file = std::uint64_t{256} << 20;
  o.plans.clear();
  for (const Text part : split(names, ',')) {
    const std::string name(part);
    if (name.empty()) return false;
    try {
      o.plans.push_back(topology::plan_from_json(read_file(name, largest_file, "a plan"), name));
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("'{}': {}", name, error.what()));
    }
  }
  return true;
}
std::string plans_of(const O& o) { return o.plans.empty() ? "" : fmt::format("{} plans", o.plans.size()); }

bool set_deadline(O& o, Text text) {
  constexpr double milliseconds = 1000;
  double seconds = 0;
  if (!parse(text, seconds, 0.001, 1e9)) return false;
  o.deadline = std::chrono::milliseconds(std::llround(seconds * milliseconds));
  return true;
}
std::string deadline_of(const O& o) {
  return fmt::format("{}", std::chrono::duration<double>(o.deadline).count());
}

/// An empty text keeps the default.
bool set_cache_directory(O& o, Text text) {
  if (!text.empty()) o.cache_directory = text;
  return true;
}

// Rows: name, variable, word; expected values; help; how the option is set and printed.
constexpr std::array options_ = {
    Option{"mode", "", "-mode", "p, r, n, b, m or c, and the grid of workers if that is not free, as p:4x8",
           "which plans compete for each collective", Option::Value{set_mode, mode_of}},
    Option{"deadline", "DDL_DEADLINE", "", "seconds from 0.001 to 1e9",
           "how long a blocking operation waits for other ranks", Option::Value{set_deadline, deadline_of}},
    Option{"debug_level", "DDL_DEBUG_LEVEL", "-dbg_level", "0, 1 or 2",
           "0: errors and warnings; 1: a line for each plan, a summary at the end; 2: every choice",
           number_in<&O::debug_level, 0, 2>},
    Option{"timeline", "DDL_TIMELINE", "", "a file's name, or no such variable",
           "a file for a trace of all ranks", name_in<&O::timeline>},
    Option{"timeline_events", "DDL_TIMELINE_EVENTS", "", "events, from 1 to 2^30",
           "how many of its newest events each thread keeps for the timeline",
           number_in<&O::timeline_events, 1, 1 << 30>},
    Option{"dump_iterations", "", "-dump_iter", "a number of steps, or 0 for never",
           "steps after which gradient reducers print who was late, and the time of each dimension",
           number_in<&O::dump_iterations, 0, 1 << 30>},
    Option{"device_sync", "", "-dev_sync", "0, 1 or 2",
           "1: each collective on devices waits until it is complete; 2: it also waits for all earlier work "
           "on the "
           "device",
           number_in<&O::device_sync, 0, 2>},
    Option{"rebind_iterations", "", "-rebind_iter", "a number of steps, or 0 for never",
           "has no effect: plans are chosen once, so that a resumed run has the same bits",
           number_in<&O::rebind_iterations, 0, 1 << 30>},
    Option{"report", "DDL_REPORT", "", "the start of files' names, or no such variable",
           "where a failed job leaves its report and each rank's last collectives", name_in<&O::report>},
    Option{"strict", "DDL_STRICT", "", "0 or 1", "a fallback from what was asked for is an error",
           number_in<&O::strict, 0, 1>},
    Option{"reproducible", "DDL_REPRODUCIBLE", "", "0 or 1",
           "sums of floats have the same bits whatever the topology and plans",
           number_in<&O::reproducible, 0, 1>},
    Option{"check", "DDL_CHECK", "", "0 or 1",
           "gradients that have moved, are unmapped, or are written to after ready() are errors",
           number_in<&O::check, 0, 1>},
    Option{"topology", "DDL_TOPOLOGY", "", "a preset or a file, or no such variable",
           "the topology that plans are chosen for; discovered if empty", name_in<&O::topology>},
    Option{"save_topology", "DDL_SAVE_TOPOLOGY", "", "the start of files' names, or no such variable",
           "where to write the topologies that plans are chosen for, for ddl-plan",
           name_in<&O::save_topology>},
    Option{"plans", "DDL_PLAN", "", "files of plans with commas between (which plans compete: DDL_OPTIONS)",
           "plans to use as they are", Option::Value{set_plans, plans_of}},
    Option{"network", "DDL_NETWORK", "", "auto, ucx or mpi", "what carries data between hosts",
           choice_in<&O::network, network_names>},
    Option{"probe", "DDL_PROBE", "", "off, cached or on",
           "whether plans are chosen by measured bandwidths and latencies",
           choice_in<&O::probe, probe_names>},
    Option{"cache_directory", "DDL_CACHE_DIR", "", "a directory",
           "where measurements are kept; else $XDG_CACHE_HOME/ddl, else ~/.cache/ddl",
           Option::Value{set_cache_directory, name_in<&O::cache_directory>.get}},
    Option{"host_id", "DDL_HOST_ID", "", "a name, or no such variable",
           "the name of this rank's host, so that ranks on one host can pretend to be on several",
           name_in<&O::host_id>},
};

}  // namespace

std::span<const Option> all_options() noexcept { return options_; }

}  // namespace ddl
