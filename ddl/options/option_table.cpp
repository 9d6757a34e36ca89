#include "ddl/options/option_table.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <type_traits>

#include "ddl/files/durable_file.hpp"

namespace ddl {
namespace {

/// The whole of `text` as a number from `least` to `most`.
template <typename T>
bool parse(std::string_view text, T& value, T least, T most) {
  if (std::is_integral_v<T> && text.size() > 1 && text.front() == '0') return false;
  T read{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), read);
  if (error != std::errc{} || end != text.data() + text.size() || !(read >= least && read <= most))
    return false;
  value = read;
  return true;
}

bool set_switch(bool& value, std::string_view text) {
  int number = 0;
  if (!parse(text, number, 0, 1)) return false;
  value = number == 1;
  return true;
}

bool set_name(std::string& value, std::string_view text) {
  value = text;
  return !text.empty();
}

std::string text_of(bool value) { return value ? "1" : "0"; }

/// `names` are files' names with commas between.
bool set_plans(ContextOptions& options, std::string_view names) {
  constexpr std::uint64_t largest_file = std::uint64_t{256} << 20;
  options.plans.clear();
  for (;;) {
    const std::size_t comma = names.find(',');
    const std::string name(names.substr(0, comma));
    if (name.empty()) return false;
    try {
      const FileReader file(name);
      if (file.size() > largest_file) throw_corrupt(name, fmt::format("{} bytes", file.size()), "a plan");
      options.plans.push_back(topology::plan_from_json(file.read_all(), name));
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("'{}': {}", name, error.what()));
    }
    if (comma == std::string_view::npos) return true;
    names.remove_prefix(comma + 1);
  }
}

bool set_deadline(ContextOptions& options, std::string_view text) {
  constexpr double milliseconds = 1000;
  double seconds = 0;
  if (!parse(text, seconds, 0.001, 1e9)) return false;
  options.deadline = std::chrono::milliseconds(static_cast<std::int64_t>(seconds * milliseconds));
  return true;
}

bool set_network(ContextOptions& options, std::string_view text) {
  if (text == "auto")
    options.network = NetworkUse::automatic;
  else if (text == "ucx")
    options.network = NetworkUse::ucx;
  else if (text == "mpi")
    options.network = NetworkUse::mpi;
  else
    return false;
  return true;
}
std::string network_of(const ContextOptions& options) {
  if (options.network == NetworkUse::automatic) return "auto";
  return options.network == NetworkUse::ucx ? "ucx" : "mpi";
}

bool set_probe(ContextOptions& options, std::string_view text) {
  if (text == "off")
    options.probe = ProbeUse::off;
  else if (text == "cached")
    options.probe = ProbeUse::cached;
  else if (text == "on")
    options.probe = ProbeUse::on;
  else
    return false;
  return true;
}
std::string probe_of(const ContextOptions& options) {
  if (options.probe == ProbeUse::off) return "off";
  return options.probe == ProbeUse::cached ? "cached" : "on";
}

std::string mode_of(const ContextOptions& options) {
  const std::string letter(1, letter_of(options.mode));
  return options.decomposition.empty() ? letter : letter + ":" + options.decomposition;
}

using O = ContextOptions;
using Text = std::string_view;

// Rows: name, variable, word; values; what it is for; how it is set and told.
constexpr std::array options_ = {
    Option{"mode", "", "-mode", "p, r, n, b, m or c, and the grid of workers if that is not free, as p:4x8",
           "which plans compete for each collective", set_mode, mode_of},
    Option{"deadline", "DDL_DEADLINE", "", "seconds from 0.001 to 1e9",
           "how long a blocking operation waits for other ranks", set_deadline,
           [](const O& o) { return fmt::format("{:g}", std::chrono::duration<double>(o.deadline).count()); }},
    Option{"debug_level", "DDL_DEBUG_LEVEL", "-dbg_level", "0, 1 or 2",
           "0: errors and warnings; 1: a line for each plan, a summary at the end; 2: every choice",
           [](O& o, Text text) { return parse(text, o.debug_level, 0, 2); },
           [](const O& o) { return std::to_string(o.debug_level); }},
    Option{"timeline", "DDL_TIMELINE", "", "a file's name, or no such variable",
           "a file for a trace of what all ranks do, and when",
           [](O& o, Text text) { return set_name(o.timeline, text); }, [](const O& o) { return o.timeline; }},
    Option{
        "timeline_events", "DDL_TIMELINE_EVENTS", "", "events, from 1 to 2^30",
        "newest events that each thread keeps for it",
        [](O& o, Text text) { return parse(text, o.timeline_events, std::size_t{1}, std::size_t{1} << 30); },
        [](const O& o) { return std::to_string(o.timeline_events); }},
    Option{"dump_iterations", "", "-dump_iter", "a number of steps, or 0 for never",
           "steps after which gradient reducers print who was late, and the time of each dimension",
           [](O& o, Text text) { return parse(text, o.dump_iterations, 0, 1 << 30); },
           [](const O& o) { return std::to_string(o.dump_iterations); }},
    Option{"device_sync", "", "-dev_sync", "0, 1 or 2",
           "1: collectives on devices are waited for; 2: what is queued on the device before them too",
           [](O& o, Text text) { return parse(text, o.device_sync, 0, 2); },
           [](const O& o) { return std::to_string(o.device_sync); }},
    Option{"rebind_iterations", "", "-rebind_iter", "a number of steps, or 0 for never",
           "has no effect: plans are chosen once, so that a run that is resumed has the same bits",
           [](O& o, Text text) { return parse(text, o.rebind_iterations, 0, 1 << 30); },
           [](const O& o) { return std::to_string(o.rebind_iterations); }},
    Option{"report", "DDL_REPORT", "", "the start of files' names, or no such variable",
           "where a failed job leaves its report and each rank's last collectives",
           [](O& o, Text text) { return set_name(o.report, text); }, [](const O& o) { return o.report; }},
    Option{"strict", "DDL_STRICT", "", "0 or 1", "what is done in another way than asked for is an error",
           [](O& o, Text text) { return set_switch(o.strict, text); },
           [](const O& o) { return text_of(o.strict); }},
    Option{"reproducible", "DDL_REPRODUCIBLE", "", "0 or 1",
           "sums of floats have the same bits whatever the topology and plans",
           [](O& o, Text text) { return set_switch(o.reproducible, text); },
           [](const O& o) { return text_of(o.reproducible); }},
    Option{"topology", "DDL_TOPOLOGY", "", "a preset or a file, or no such variable",
           "what the ranks run on; empty: discovered",
           [](O& o, Text text) { return set_name(o.topology, text); }, [](const O& o) { return o.topology; }},
    Option{"save_topology", "DDL_SAVE_TOPOLOGY", "", "the start of files' names, or no such variable",
           "where to write what plans are chosen for, for ddl-plan",
           [](O& o, Text text) { return set_name(o.save_topology, text); },
           [](const O& o) { return o.save_topology; }},
    Option{"plans", "DDL_PLAN", "", "files of plans with commas between (which plans compete: DDL_OPTIONS)",
           "plans to use as they are", set_plans,
           [](const O& o) { return o.plans.empty() ? "" : fmt::format("{} plans", o.plans.size()); }},
    Option{"network", "DDL_NETWORK", "", "auto, ucx or mpi", "what carries data between hosts", set_network,
           network_of},
    Option{"probe", "DDL_PROBE", "", "off, cached or on",
           "whether plans are chosen by measured figures of links", set_probe, probe_of},
    Option{"cache_directory", "DDL_CACHE_DIR", "", "a directory",
           "where measured figures are kept; else $XDG_CACHE_HOME/ddl, else ~/.cache/ddl",
           [](O& o, Text text) {
             if (!text.empty()) o.cache_directory = text;
             return true;
           },
           [](const O& o) { return o.cache_directory; }},
    Option{"host_id", "DDL_HOST_ID", "", "a name, or no such variable",
           "the name of this rank's host, with which ranks can pretend to be on several",
           [](O& o, Text text) { return set_name(o.host_id, text); }, [](const O& o) { return o.host_id; }},
};

}  // namespace

std::span<const Option> all_options() noexcept { return options_; }

}  // namespace ddl
