#include "ddl/topology/planner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "ddl/topology/physical_bound.hpp"
#include "topology/plan/algorithms.hpp"
#include "topology/planner/device_candidates.hpp"
#include "topology/planner/plan_shape.hpp"
#include "topology/planner/plan_timing.hpp"
#include "topology/planner/plan_trial.hpp"
#include "topology/refuse.hpp"

namespace ddl::topology {
namespace {

// Plans whose predictions are within this factor of the best one are compared by simulation.
constexpr double nearness = 1.3;
// Factor on predictions that are not simulated, because they are more often too low than too high.
constexpr double doubt = 1.05;
constexpr int least_tried = 8;  // chunks that are simulated at least, if a plan has more
constexpr std::size_t most_near = 600;

std::vector<int> chunk_counts(const PlanRequest& request) {
  if (request.chunks) return {*request.chunks};
  if (request.mode == Mode::mpi) return {1};
  std::vector<int> result;
  for (int chunks = 1; chunks <= most_chunks; chunks *= 2) result.push_back(chunks);
  return result;
}

void require_valid(const PlanRequest& request, int ranks) {
  if (algorithms_of(request.collective).empty()) {
    refuse("plan request: found {}, expected {}: a barrier needs no plan", to_string(request.collective),
           planned_names());
  }
  if (request.chunks && (*request.chunks < 1 || *request.chunks > most_chunks)) {
    refuse("plan request: found {} chunks, expected 1 to {}", *request.chunks, most_chunks);
  }
  const bool sums =
      request.collective == Collective::all_reduce || request.collective == Collective::reduce_scatter;
  const bool is_wire = !request.wire || *request.wire == DataType::bf16 || *request.wire == DataType::f16;
  if (request.wire && (!is_wire || !sums || request.type != DataType::f32)) {
    refuse(
        "plan request: found the wire {} for {} of {}, expected bf16 or f16 for all_reduce or "
        "reduce_scatter of f32",
        to_string(*request.wire), to_string(request.collective), to_string(request.type));
  }
  if (request.decomposition && request.decomposition->ranks() != ranks) {
    refuse(
        "plan request: decomposition {} has {} positions, but there {} {} rank{}: the product "
        "of its sizes must be the number of ranks",
        to_string(*request.decomposition), request.decomposition->ranks(), ranks == 1 ? "is" : "are", ranks,
        ranks == 1 ? "" : "s");
  }
}

/// The part of a type's bytes that is sent.
double wire_share(DataType type, DataType wire) {
  return static_cast<double>(size_of(wire)) / static_cast<double>(size_of(type));
}
double wire_share(const PlanRequest& request) {
  return wire_share(request.type, request.wire.value_or(request.type));
}

/// Rounds times so that sums of the same terms in different orders compare equal.
float comparable(double microseconds) { return static_cast<float>(microseconds); }

/// A shape with a number of chunks, and its predicted time.
struct Timed {
  std::size_t shape;
  int chunks;
  double us;
};

}  // namespace

struct Planner::State {
  State(const Topology& graph, Placement where, CostModel model)
      : topology(&graph),
        placement(std::move(where)),
        cost(model),
        timing(graph, placement, cost),
        bound(graph, placement),
        topology_hash(graph.hash()) {
    for (std::size_t rank = 0; rank < placement.size(); ++rank) {
      if (graph.node(graph.node_of_device(placement[rank])).kind == NodeKind::gpu) continue;
      if (first_on_cpu < 0) first_on_cpu = static_cast<int>(rank);
    }
    if (!graph.carriers() || first_on_cpu >= 0) return;
    const std::size_t rings = timing.rings_order().value_or(timing.host_order());
    on_devices.emplace(graph, placement, cost, timing.orders()[rings]);
  }

  [[nodiscard]] int ranks() const { return static_cast<int>(placement.size()); }

  /// Why NCCL cannot be used; empty if it can.
  [[nodiscard]] std::string nccl_problem(const PlanRequest& request) const {
    if (first_on_cpu >= 0) return fmt::format("rank {} is not on a GPU", first_on_cpu);
    if (!request.nccl) return "NCCL is not available here";
    return {};
  }

  /// By time; equal ones by whether they are along hosts, then by dimensions, then by chunks.
  void sort(std::vector<Timed>& plans, const std::vector<PlanShape>& shapes) const {
    std::ranges::sort(plans, {}, [&](const Timed& timed) {
      const PlanShape& shape = shapes[timed.shape];
      return std::tuple(comparable(timed.us), !timing.along_hosts(shape), shape.algorithms.size(),
                        timed.chunks, timed.shape);
    });
  }

  std::vector<std::vector<ProfiledPhase>> phases_of(const PlanRequest& request,
                                                    const std::vector<PlanShape>& shapes) {
    std::vector<std::vector<ProfiledPhase>> phases;
    phases.reserve(shapes.size());
    for (const PlanShape& shape : shapes) phases.push_back(timing.phases(request.collective, shape));
    return phases;
  }

  /// All shapes with all numbers of chunks, sorted by what `time` returns for a shape's pipeline.
  std::vector<Timed> timed(const PlanRequest& request, const std::vector<PlanShape>& shapes,
                           const std::vector<std::vector<ProfiledPhase>>& phases, const auto& time) {
    std::vector<Timed> result;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      PipelineTime& pipeline = timing.pipeline(phases[i]);
      for (const int count : chunk_counts(request)) {
        result.push_back({i, count, request.bytes == 0 ? 0 : time(pipeline, count)});
      }
    }
    sort(result, shapes);
    return result;
  }

  /// The messages of all ranks for one of so many chunks.
  static double messages_of(std::span<const ProfiledPhase> phases, int chunks) {
    double messages = 0;
    for (const ProfiledPhase& phase : phases) messages += phase.profile->messages * phase.messages(chunks);
    return messages;
  }

  /// The best of plans with similar predictions, by simulation as far as the limit on transfers allows.
  Timed try_out(const PlanRequest& request, const std::vector<PlanShape>& shapes,
                const std::vector<std::vector<ProfiledPhase>>& phases, const std::vector<Timed>& near) {
    double transfers = PlanTrial::most_transfers(ranks());
    if (near.size() == 1 || transfers == 0 || request.bytes == 0) return near.front();
    if (!trial) trial.emplace(*topology, placement, cost);
    std::optional<Timed> best;
    double best_us = 0;
    for (const Timed& timed : near) {
      if (timed.us > near.front().us * nearness) break;
      if (best && best_us <= timed.us / nearness) break;
      const double messages = messages_of(phases[timed.shape], timed.chunks);
      // Simulates as many chunks as the limit allows, and assumes the same relative error for all.
      int chunks = timed.chunks;
      while (chunks > least_tried && messages * chunks > transfers / 2) chunks /= 2;
      const double part = static_cast<double>(chunks) / timed.chunks;
      PlanRequest of_part = request;
      of_part.bytes = static_cast<std::uint64_t>(static_cast<double>(request.bytes) * part);
      const Plan plan = make_plan(of_part, shapes[timed.shape], {timed.shape, chunks, 0});
      double us = timed.us * doubt;
      if (messages * chunks <= transfers) {
        transfers -= messages * chunks;
        us = timed.us * trial->run(plan).total_us / plan.predicted_us;
      }
      us *= trial->tcp_slowdown(plan, request.bytes, timed.chunks);
      // Smaller differences count as none: the plan that is predicted to be better, or is simpler, stays.
      if (!best || us < best_us * (1 - 1e-3)) {
        best = timed;
        best_us = us;
      }
    }
    return *best;
  }

  Plan make_plan(const PlanRequest& request, const PlanShape& shape, const Timed& timed) {
    Plan plan;
    plan.collective = request.collective;
    plan.bytes = request.bytes;
    plan.type = request.type;
    plan.mode = request.mode;
    plan.decomposition = shape.decomposition;
    const RankOrder& order = timing.orders()[shape.order];
    plan.order = order.ranks;
    plan.further_orders = order.further;
    plan.order_name = order.name;
    plan.chunks = timed.chunks;
    const bool wants_nccl = request.mode == Mode::nccl || request.mode == Mode::nccl_per_dimension;
    const std::string problem = wants_nccl ? nccl_problem(request) : std::string();
    if (!problem.empty()) {
      plan.notes.push_back(
          fmt::format("mode {} ({}) asks for NCCL, but {}: the library's own rings are used instead",
                      letter_of(request.mode), to_string(request.mode), problem));
    }
    plan.dimensions.clear();
    timing.set_wire_share(wire_share(request));
    for (int d = 0; d < shape.decomposition.dimensions(); ++d) {
      PlanDimension dimension{shape.algorithms[as_index(d)], Carrier::network};
      if (request.mode == Mode::mpi) {
        dimension.carrier = Carrier::mpi;
      } else if (wants_nccl && problem.empty()) {
        dimension.carrier = Carrier::nccl;
      } else if (timing.inside_hosts(shape, d)) {
        dimension.carrier = first_on_cpu >= 0 ? Carrier::shared_memory : Carrier::cuda_ipc;
      }
      if (!timing.inside_hosts(shape, d)) dimension.wire = request.wire;
      plan.dimensions.push_back(dimension);
    }
    fill_in_times(plan, shape);
    return plan;
  }

  PlanShape shape_of(const Plan& plan) {
    PlanShape shape{
        timing.order_index({plan.order_name, plan.order, plan.further_orders}), plan.decomposition, {}};
    for (const PlanDimension& dimension : plan.dimensions) shape.algorithms.push_back(dimension.algorithm);
    return shape;
  }

  void fill_in_times(Plan& plan, const PlanShape& shape) {
    const double share = wire_share(plan.type, wire_of(plan));
    timing.set_wire_share(share);
    const auto phases = timing.phases(plan.collective, shape);
    const auto bytes = static_cast<double>(plan.bytes);
    plan.phase_us.clear();
    for (const ProfiledPhase& phase : phases) {
      plan.phase_us.push_back(
          plan.bytes == 0 ? 0 : phase_time(phase, bytes / plan.chunks, plan.chunks, cost.step_overhead));
    }
    plan.predicted_us = plan.bytes == 0 ? 0 : timing.pipeline(phases).of(bytes, plan.chunks);
    plan.bound_us = bound.us(plan.collective, static_cast<std::uint64_t>(bytes * share));
    plan.topology_hash = topology_hash;
  }

  /// The plan with the least time, whatever could execute it.
  Plan search(const PlanRequest& request) {
    timing.set_wire_share(wire_share(request));
    const auto shapes = find_shapes(request, ranks(), timing);
    const auto phases = phases_of(request, shapes);
    const auto bytes = static_cast<double>(request.bytes);
    // Exact times are computed only for plans whose lower bound may beat the best so far.
    const std::vector<Timed> least = timed(request, shapes, phases, [&](PipelineTime& pipeline, int chunks) {
      return pipeline.least(bytes, chunks);
    });
    // Plans that are merely near the best are kept only for the trial.
    const std::size_t most = PlanTrial::most_transfers(ranks()) > 0 ? most_near : 0;
    std::vector<Timed> near;
    std::set<std::string> steps;
    double best_us = 0;
    for (Timed timed : least) {
      if (!near.empty() && timed.us > best_us * (near.size() < most ? nearness : 1 + 1e-6)) break;
      if (!steps.insert(steps_of(shapes[timed.shape], timed.chunks)).second) continue;
      if (request.bytes != 0) timed.us = timing.pipeline(phases[timed.shape]).of(bytes, timed.chunks);
      if (near.empty() || timed.us < best_us) best_us = timed.us;
      near.push_back(timed);
    }
    sort(near, shapes);
    const Timed best = try_out(request, shapes, phases, near);
    return make_plan(request, shapes[best.shape], best);
  }

  std::vector<Plan> all(const PlanRequest& request, std::size_t most) {
    timing.set_wire_share(wire_share(request));
    const auto shapes = find_shapes(request, ranks(), timing);
    const std::vector<Timed> sorted =
        timed(request, shapes, phases_of(request, shapes), [&](PipelineTime& pipeline, int chunks) {
          return pipeline.of(static_cast<double>(request.bytes), chunks);
        });
    std::vector<Plan> result;
    for (const Timed& timed : sorted) {
      if (result.size() == most) break;
      result.push_back(make_plan(request, shapes[timed.shape], timed));
    }
    return result;
  }

  /// The plans that the request asks for and the device carriers can execute. `most`: how many plans by a
  /// network's steps to include; if not set, only the one that `search` chooses.
  std::vector<Plan> executable(const PlanRequest& request, std::optional<std::size_t> most) {
    std::vector<Plan> plans = on_devices->of(request);
    if (on_devices->carriers().network) {
      const PlanRequest steps = for_network(request);
      std::vector<Plan> found = most ? all(steps, *most) : std::vector{search(steps)};
      for (Plan& plan : found) {
        for (PlanDimension& dimension : plan.dimensions) dimension.carrier = Carrier::network;
        plans.push_back(std::move(plan));
      }
    }
    std::vector<std::string> notes;
    plans = narrowed(std::move(plans), request, notes);
    for (Plan& plan : plans) {
      const PlanShape shape = shape_of(plan);
      // A network executes the steps as one program, with one wire type.
      bool crosses = false;
      for (int d = 0; d < plan.decomposition.dimensions(); ++d) crosses |= !timing.inside_hosts(shape, d);
      const bool is_one_program = on_devices->is_of_network(plan);
      for (int d = 0; d < plan.decomposition.dimensions(); ++d) {
        const bool is_narrow = is_one_program ? crosses : !timing.inside_hosts(shape, d);
        if (is_narrow) plan.dimensions[as_index(d)].wire = request.wire;
      }
      plan.notes.insert(plan.notes.end(), notes.begin(), notes.end());
      fill_in_times(plan, shape);
      add_calls(plan);
    }
    if (plans.empty()) {
      refuse("plan request: found no plan for {} that the carriers between these devices ({}) can run",
             to_string(request.collective), to_string(on_devices->carriers()));
    }
    return plans;
  }

  /// Adds the time of the device carriers' calls to the prediction.
  void add_calls(Plan& plan) {
    if (!on_devices || plan.bytes == 0) return;
    std::vector<DeviceCandidates::PhaseTime> times;
    for (const ProfiledPhase& phase : timing.phases(plan.collective, shape_of(plan))) {
      times.push_back(
          {phase_time(phase, static_cast<double>(plan.bytes) / plan.chunks, plan.chunks, cost.step_overhead),
           phase_time(phase, 0, plan.chunks, cost.step_overhead), phase.profile->messages / ranks()});
    }
    plan.predicted_us += on_devices->calls_us(plan, times);
  }

  const Topology* topology;
  Placement placement;
  CostModel cost;
  PlanTiming timing;
  PhysicalBound bound;
  std::uint64_t topology_hash;
  int first_on_cpu = -1;
  std::optional<PlanTrial> trial;
  std::optional<DeviceCandidates> on_devices;  // set if the topology has carriers and all ranks are on GPUs
};

Planner::Planner(const Topology& topology, Placement placement, CostModel cost) {
  topology::require_valid(topology, placement);
  state_ = std::make_unique<State>(topology, std::move(placement), cost);
}
Planner::~Planner() = default;
Planner::Planner(Planner&&) noexcept = default;
Planner& Planner::operator=(Planner&&) noexcept = default;

const Topology& Planner::topology() const noexcept { return *state_->topology; }
const Placement& Planner::placement() const noexcept { return state_->placement; }
const CostModel& Planner::cost() const noexcept { return state_->cost; }

Plan Planner::choose(const PlanRequest& request) {
  require_valid(request, state_->ranks());
  if (!state_->on_devices) return state_->search(request);
  std::vector<Plan> plans = state_->executable(request, {});
  return std::move(*std::ranges::min_element(plans, {}, &Plan::predicted_us));
}

std::vector<Plan> Planner::candidates(const PlanRequest& request, std::size_t most) {
  require_valid(request, state_->ranks());
  if (!state_->on_devices) return state_->all(request, most);
  std::vector<Plan> plans = state_->executable(request, most);
  std::ranges::stable_sort(plans, {}, &Plan::predicted_us);
  if (plans.size() > most) plans.resize(most);
  return plans;
}

bool Planner::executes(const Plan& plan) { return !state_->on_devices || state_->on_devices->include(plan); }

double Planner::transfers(const Plan& plan) {
  const auto phases = state_->timing.phases(plan.collective, state_->shape_of(plan));
  return plan.chunks * State::messages_of(phases, plan.chunks);
}

void Planner::predict(Plan& plan) {
  State& state = *state_;
  topology::require_valid(plan);
  if (plan.decomposition.ranks() != state.ranks()) {
    refuse("plan: found {} ranks, expected {}, as the planner's placement has", plan.decomposition.ranks(),
           state.ranks());
  }
  state.fill_in_times(plan, state.shape_of(plan));
  state.add_calls(plan);
}

}  // namespace ddl::topology
