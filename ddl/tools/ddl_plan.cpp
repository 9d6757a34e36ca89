// ddl-plan: chooses, explains, verifies and simulates plans.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "ddl/tools/command_line.hpp"
#include "ddl/tools/plan_arguments.hpp"
#include "ddl/tools/plan_report.hpp"
#include "ddl/tools/topo_commands.hpp"
#include "ddl/topology/program.hpp"
#include "topology/refuse.hpp"
#include "topology/text.hpp"

namespace ddl::tools {
namespace {

using topology::Plan;
using topology::Planner;
using topology::Topology;

constexpr std::string_view help =
    R"(ddl-plan: which plan a collective gets on a machine, real or not, why, and how long it takes

  ddl-plan --topology ac922:4 --ranks 16 --bytes 717668352
                                           the plan: a table of its phases, its predicted time, and the time
                                           that no plan can beat
  ddl-plan --topology ac922:4 --bytes 64M --explain
                                           why this plan: the alternatives, the bottleneck, what to do
  ddl-plan --topology ac922:4 --bytes 64M --verify
                                           prove it: every sum complete, every send received, no deadlock
  ddl-plan --topology ac922:4 --bytes 64M --simulate
                                           run it on a virtual clock: time by phase, busiest links, critical path
  ddl-plan --topology ac922:4 --bytes 64M --dot plan.dot && dot -Tsvg -o plan.svg plan.dot
                                           draw it: machines, links coloured by utilisation, rings; Graphviz draws,
                                           and FILE.dot gets the text that it draws
                                           every step, for https://ui.perfetto.dev or chrome://tracing
  ddl-plan --topology ac922:4 --bytes 64M --candidates all
                                           every plan that was considered
  ddl-plan --topology ac922:4 --ranks 16 --bytes 64M --mode p:2x2x4 --chunks 8
                                           the time that a given decomposition would take
  ddl-plan --topology ac922:4 --bytes 64M --straggler 3:2 --jitter 0.2 --seed 7 --simulate
                                           with rank 3 at half its speed, and latencies up to 20% longer
  ddl-plan --topology ac922:4 --bytes 64M --save plan.json
  ddl-plan --topology ac922:4 --plan plan.json --verify
                                           save a plan, and use it again

Input
  --topology NAME|FILE|-  a preset (ddl-topo presets), a file (ddl-topo export), or standard input (default: this
                          machine)
  --ranks N               number of ranks, one per device (default: all devices)
  --device auto|cpu|gpu   where the ranks of this machine are
  --placement by-host|round-robin
                          fill one host after the other (default), or place ranks on the hosts in turn
  --bytes N               size of each rank's buffer; K, M and G are powers of 1024. For a reduce_scatter or
                          all_gather the whole buffer, of which a rank has one piece
  --collective all_reduce|broadcast|reduce_scatter|all_gather|reduce
  --root RANK             root of a broadcast or reduce (default 0)
  --type f32|f64|f16|bf16|i32|i64|u8
  --wire bf16|f16         type in which sums of f32 travel between hosts (all_reduce, reduce_scatter)
  --mode LETTER[:DIMENSIONS]
                          which plans are considered: p everything (default), r rings, n NCCL over all ranks,
                          b NCCL in each dimension, c reduce-scatter and all-gather in each dimension, m the plan
                          of an MPI library that does not know the wiring (ranks in order, one chunk, one
                          algorithm); and the sizes of the dimensions, innermost first, as in p:4x4
  --chunks N              1 to 64 pipelined chunks (default: chosen)
  --no-nccl               plan as if NCCL were not available
  --carriers LIST         only plans that a job on GPUs can execute with these carriers: cuda_ipc, nccl, network
                          and host_memory, separated by commas; cuda_ipc:N gives the largest size in bytes for
                          one_shot. A topology that a job has saved (DDL_SAVE_TOPOLOGY) has the job's carriers.
                          Such a job rounds sizes up to one of four per octave: give --bytes a size of that kind
  --plan FILE|-           use this plan instead of the best one

Output
  --explain --verify --simulate --candidates N|all --json
  --dot FILE, --save FILE
  --jitter X --seed N     each latency in the simulation is up to X times longer, drawn from the seed
  --straggler RANK:FACTOR[,...]
                          ranks whose steps take FACTOR times as long
  --limit N               the largest number of transfers to verify or simulate (default 2e7)
  -h, --help

Times are predictions from the topology's bandwidths and latencies; nothing is measured. README.md explains how to
read a plan, topology/README.md the JSON's schema.
The exit status is 0, 2 if the command line is wrong, and 1 if the plan does not verify or another error occurs.
)";

/// --json also verifies and simulates plans of at most this size without being asked, because that is fast.
constexpr double most_transfers_unasked = 200'000;
constexpr double bytes_per_transfer = 150;  // memory of the verifier or the simulator

Topology topology_of(const PlanArguments& arguments, std::vector<std::string>& notes) {
  const Topology topology =
      arguments.has("--topology")
          ? named_topology(arguments.line.value("--topology"), Placement{})
          : this_machine(Placement{arguments.ranks.value_or(0), arguments.device}, notes);
  return arguments.carriers ? topology.with_carriers(*arguments.carriers) : topology;
}

topology::Placement placement_of(const PlanArguments& arguments, const Topology& topology) {
  const auto devices = static_cast<int>(topology.devices().size());
  const int ranks = arguments.ranks.value_or(devices);
  if (ranks > devices) {
    refuse_usage("--ranks: found {}, expected at most {}: {} has {}, and each holds one rank", ranks, devices,
                 arguments.topology, count_text(static_cast<std::uint64_t>(devices), "device"));
  }
  return arguments.round_robin ? place_round_robin(topology, ranks) : place_by_host(topology, ranks);
}

void check_ranks(const PlanArguments& arguments, int ranks) {
  if (arguments.root >= ranks) {
    refuse_usage("--root: found rank {}, expected one from 0 to {}", arguments.root, ranks - 1);
  }
  for (const topology::Straggler& straggler : arguments.simulation.stragglers) {
    if (straggler.rank < ranks) continue;
    refuse_usage("--straggler: found rank {}, expected one from 0 to {}", straggler.rank, ranks - 1);
  }
}

void check_pieces(const PlanArguments& arguments, int ranks) {
  const std::uint64_t unit = static_cast<std::uint64_t>(ranks) * size_of(arguments.request.type);
  if (!has_pieces(arguments.request.collective) || arguments.request.bytes % unit == 0) return;
  refuse_usage("--bytes: found {}, expected a multiple of {}: a piece of whole elements for each of {}",
               arguments.request.bytes, unit, count_text(static_cast<std::uint64_t>(ranks), "rank"));
}

topology::PlanRequest request_of(const PlanArguments& arguments, int ranks) {
  topology::PlanRequest request = arguments.request;
  const std::size_t colon = arguments.mode_text.find(':');
  if (colon == std::string::npos) return request;
  request.decomposition = read_for(
      "--mode", [&] { return topology::Decomposition::parse(arguments.mode_text.substr(colon + 1), ranks); });
  return request;
}

Plan given_plan(const std::string& path, Planner& planner) {
  Plan plan = topology::plan_from_json(read_text(path), path == "-" ? "standard input" : path);
  const auto ranks = static_cast<int>(planner.placement().size());
  if (plan.decomposition.ranks() != ranks) {
    topology::refuse("{}: found a plan for {}, expected one for {}: give --ranks {}", path,
                     count_text(static_cast<std::uint64_t>(plan.decomposition.ranks()), "rank"), ranks,
                     plan.decomposition.ranks());
  }
  if (!planner.executes(plan)) {
    topology::refuse("{}: found {}, which the carriers between these devices ({}) cannot do", path,
                     summary(plan), to_string(*planner.topology().carriers()));
  }
  planner.predict(plan);
  return plan;
}

/// Empty if the plan's schedule is small enough; otherwise a message with the remedies.
std::string too_large(const Plan& plan, double transfers, double most_transfers) {
  if (transfers <= most_transfers) return {};
  return fmt::format(
      "found a schedule of about {:.2g} transfers ({} of memory), expected at most {:.2g}; give fewer chunks "
      "(--chunks 1; now {}), fewer ranks, a decomposition into more and smaller dimensions (--mode), or a "
      "higher limit (--limit {:.2g})",
      transfers, format_bytes(transfers * bytes_per_transfer), most_transfers, plan.chunks, 1.1 * transfers);
}

/// Verifies and simulates if the user asks for it, or if an output uses the result and it is cheap.
void examine(PlanReport& report, Planner& planner, const PlanArguments& arguments) {
  const bool must_verify = arguments.has("--verify");
  const bool verify_if_cheap = arguments.has("--json");
  const bool simulate_if_possible = arguments.has("--explain") || arguments.has("--dot");
  const bool must_simulate = arguments.has("--simulate");
  if (!must_verify && !verify_if_cheap && !simulate_if_possible && !must_simulate) return;
  const double transfers = transfers_to_run(report.plan, planner);
  const bool is_cheap = transfers <= most_transfers_unasked;
  const std::string problem = too_large(report.plan, transfers, arguments.most_transfers);
  if (!problem.empty() && (must_verify || must_simulate)) {
    topology::refuse("{}: {}", must_verify ? "--verify" : "--simulate", problem);
  }
  report.not_simulated = problem;
  const bool verifies = must_verify || (verify_if_cheap && is_cheap);
  const bool simulates =
      must_simulate || (simulate_if_possible && problem.empty()) || (verify_if_cheap && is_cheap);
  if (!verifies && !simulates) return;
  const std::size_t element_bytes = size_of(report.plan.type);
  report.schedule = topology::schedule_to_run(report.plan, topology::elements_of(report.plan), report.root,
                                              planner.topology(), planner.placement());
  if (verifies) report.verdict = topology::verify(*report.schedule);
  if (!simulates) return;
  topology::SimulationOptions options = arguments.simulation;
  options.element_bytes = element_bytes;
  report.simulation = topology::simulate(planner.topology(), planner.placement(), *report.schedule, options);
}

int run(const std::vector<std::string>& words) {
  const PlanArguments arguments = parse_plan_arguments(words);
  std::vector<std::string> notes;
  const Topology topology = topology_of(arguments, notes);
  for (const std::string& note : notes) fmt::print(stderr, "ddl-plan: note: {}\n", note);
  topology::Placement placement = placement_of(arguments, topology);
  const auto ranks = static_cast<int>(placement.size());
  check_ranks(arguments, ranks);
  topology::PlanRequest request = request_of(arguments, ranks);
  check_pieces(arguments, ranks);

  Planner planner(topology, std::move(placement));
  PlanReport report;
  report.topology_name = arguments.topology;
  report.placement_name = arguments.round_robin ? "round-robin" : "by host";
  report.root = arguments.root;
  report.plan =
      arguments.has("--plan") ? given_plan(arguments.line.value("--plan"), planner) : planner.choose(request);
  report.transfers = planner.transfers(report.plan);
  examine(report, planner, arguments);
  const bool explains = arguments.has("--explain");
  if (explains) {
    request.collective = report.plan.collective;
    request.bytes = report.plan.bytes;
    request.type = report.plan.type;
    report.alternatives = alternatives_to(report.plan, planner, request);
    rate(report.alternatives, planner, report.root, arguments.simulation, most_transfers_unasked,
         arguments.most_transfers / 4);
  }
  if (arguments.has("--candidates")) {
    for (Plan& plan : planner.candidates(request)) {
      ++report.candidates_in_all;
      if (report.candidates.size() < arguments.candidates)
        report.candidates.push_back({"", std::move(plan), {}});
    }
    rate(report.candidates, planner, report.root, arguments.simulation, most_transfers_unasked,
         arguments.most_transfers / 2);
  }

  const auto file = [&](std::string_view flag) { return arguments.line.value(flag); };
  if (arguments.has("--save")) write_text(file("--save"), to_json(report.plan));
  if (arguments.has("--dot")) write_text(file("--dot"), plan_dot(planner, report));
  if (arguments.has("--json")) {
    write_text("-", report_json(planner, report, explains));
  } else {
    std::string text = plan_text(planner, report);
    if (explains) text += explanation_text(planner, report);
    if (report.verdict) text += verdict_text(*report.verdict);
    if (arguments.has("--simulate")) text += simulation_text(planner, report);
    if (arguments.has("--candidates")) text += candidates_text(report);
    write_text("-", text);
  }
  if (!report.verdict || report.verdict->ok) return 0;
  fmt::print(stderr, "ddl-plan: the plan does not verify: {}\n", report.verdict->problem);
  return 1;
}

}  // namespace
}  // namespace ddl::tools

int main(int argc, char** argv) {
  return ddl::tools::main_of("ddl-plan", ddl::tools::help, argc, argv, ddl::tools::run,
                             ddl::tools::Failures::usage_errors);
}
