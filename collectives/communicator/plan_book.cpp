#include "collectives/communicator/plan_book.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "topology/refuse.hpp"

namespace ddl::collectives {

using topology::Collective;
using topology::Plan;

namespace {

void check(const PlanWishes& wishes, int ranks) {
  const auto refuse_ranks = [&](std::string_view what, int found) {
    fail_with(ErrorCode::invalid_argument, "{} is for {} ranks, but this job has {}", what, found, ranks);
  };
  if (wishes.decomposition && wishes.decomposition->ranks() != ranks) {
    refuse_ranks(fmt::format("the decomposition {}", to_string(*wishes.decomposition)),
                 wishes.decomposition->ranks());
  }
  for (std::size_t i = 0; i < wishes.plans.size(); ++i) {
    const Plan& plan = wishes.plans[i];
    topology::require_valid(plan);
    if (plan.collective == Collective::barrier) {
      throw Error(ErrorCode::invalid_argument, "found a plan for a barrier, which needs none");
    }
    if (plan.decomposition.ranks() != ranks) {
      refuse_ranks(fmt::format("the given plan for {}, {},", to_string(plan.collective),
                               to_string(plan.decomposition)),
                   plan.decomposition.ranks());
    }
    if (!is_for_hosts(plan) && !is_for_devices(plan)) {
      fail_with(ErrorCode::invalid_argument,
                "found a plan whose dimensions are carried between hosts' memory and between "
                "devices', expected one of the two: {}",
                summary(plan));
    }
    const auto same = [&](const Plan& other) {
      return other.collective == plan.collective &&
             ((is_for_hosts(other) && is_for_hosts(plan)) || (is_for_devices(other) && is_for_devices(plan)));
    };
    if (std::any_of(wishes.plans.begin(), wishes.plans.begin() + static_cast<std::ptrdiff_t>(i), same)) {
      fail_with(ErrorCode::invalid_argument, "found two plans for {}, expected at most one",
                to_string(plan.collective));
    }
  }
}

void set_wire(Plan& plan, std::optional<DataType> wire) {
  using topology::Carrier;
  const bool has_one = wire_of(plan) != plan.type;
  for (topology::PlanDimension& dimension : plan.dimensions) {
    const bool travels =
        dimension.carrier != Carrier::shared_memory && dimension.carrier != Carrier::cuda_ipc;
    dimension.wire = travels && (dimension.wire || !has_one) ? wire : std::nullopt;
  }
}

std::shared_ptr<const ChosenPlan> with_texts(Plan plan) {
  auto chosen = std::make_shared<ChosenPlan>();
  chosen->text = summary(plan);
  chosen->hash = topology::hash(plan);
  for (std::size_t i = 0; i < plan.dimensions.size(); ++i) {
    chosen->dimensions.push_back(
        fmt::format("{} members, {}, {}", plan.decomposition.size(static_cast<int>(i)),
                    to_string(plan.dimensions[i].algorithm), carrier_text(plan.dimensions[i])));
  }
  for (const topology::Phase& phase : phases_of(plan)) {
    chosen->dimension_of.push_back(phase.dimension);
    chosen->phases.push_back(fmt::format("{} in dimension {}", to_string(phase.kind), phase.dimension));
  }
  chosen->plan = std::move(plan);
  return chosen;
}

}  // namespace

std::uint64_t size_class(std::uint64_t bytes) noexcept {
  constexpr std::uint64_t smallest = 256;
  if (bytes <= smallest) return smallest;
  if (bytes > std::uint64_t{1} << 62) return bytes;
  const std::uint64_t step = std::bit_floor(bytes - 1) / 4;
  return (bytes + step - 1) / step * step;
}

void require_devices(const topology::Topology& topology, int ranks) {
  if (topology.devices().size() >= as_index(ranks)) return;
  fail_with(ErrorCode::invalid_argument,
            "the topology has {} devices, but this job has {} ranks: give one with at least as "
            "many devices (DDL_TOPOLOGY), or start fewer ranks",
            topology.devices().size(), ranks);
}

PlanBook::PlanBook(int ranks, std::function<Topology()> find_topology, PlanWishes wishes)
    : placement_(as_index(ranks)), find_topology_(std::move(find_topology)), wishes_(std::move(wishes)) {
  std::iota(placement_.begin(), placement_.end(), 0);
  check(wishes_, ranks);
}

PlanBook::PlanBook(std::shared_ptr<PlanBook> job, topology::Placement placement)
    : job_(std::move(job)),
      placement_(std::move(placement)),
      find_topology_([this] { return job_->topology(); }),
      wishes_(placement_.size() == job_->placement_.size() ? job_->wishes_
                                                           : PlanWishes{.mode = job_->wishes_.mode}) {}

std::shared_ptr<PlanBook> PlanBook::of_members(std::span<const int> members) {
  if (job_) return job_->of_members(members);
  topology::Placement placement(members.begin(), members.end());
  if (placement == placement_) return shared_from_this();
  const std::lock_guard lock(mutex_);
  std::weak_ptr<PlanBook>& entry = of_members_[placement];
  std::shared_ptr<PlanBook> book = entry.lock();
  if (!book) {
    std::erase_if(of_members_,
                  [&](const auto& other) { return other.second.expired() && other.first != placement; });
    book.reset(new PlanBook(shared_from_this(), placement));
    entry = book;
  }
  return book;
}

const topology::Topology& PlanBook::known_topology() {
  if (!topology_) {
    Topology found = find_topology_();
    if (!job_) require_devices(*found, static_cast<int>(placement_.size()));
    topology_ = std::move(found);
  }
  return *topology_;
}

PlanBook::Topology PlanBook::topology() {
  const std::lock_guard lock(mutex_);
  known_topology();
  return topology_;
}

void PlanBook::replace_topology(Topology topology) {
  const std::lock_guard lock(mutex_);
  planner_.reset();
  plans_.clear();
  topology_.reset();
  find_topology_ = [topology = std::move(topology)] { return topology; };
  known_topology();
}

std::shared_ptr<const ChosenPlan> PlanBook::plan(Collective collective, std::uint64_t bytes, DataType type,
                                                 std::optional<DataType> wire) {
  const Key key{collective, size_class(bytes), type, wire};
  const std::lock_guard lock(mutex_);
  auto& entry = plans_[key];
  if (!entry) entry = with_texts(choose(key));
  return entry;
}

Plan PlanBook::choose(const Key& key) {
  const auto& [collective, bytes, type, wire] = key;
  if (!planner_) planner_.emplace(known_topology(), placement_);
  const bool is_on_devices = topology_->carriers().has_value();
  std::vector<std::string> notes;
  for (const Plan& given : wishes_.plans) {
    const bool fits = is_on_devices ? is_for_devices(given) : is_for_hosts(given);
    if (given.collective != collective || !fits) continue;
    Plan plan = given;
    plan.bytes = bytes;
    plan.type = type;
    set_wire(plan, wire);
    if (planner_->executes(plan)) {
      planner_->predict(plan);
      return plan;
    }
    notes.push_back(fmt::format(
        "DDL_PLAN asks for {}, which the carriers between these devices cannot do, or not for all "
        "sizes: the plan is chosen without it",
        summary(given)));
  }
  // The host engine does not run NCCL's collectives.
  Plan plan = planner_->choose({.collective = collective,
                                .bytes = bytes,
                                .type = type,
                                .mode = wishes_.mode,
                                .decomposition = wishes_.decomposition,
                                .wire = wire,
                                .nccl = is_on_devices});
  plan.notes.insert(plan.notes.end(), notes.begin(), notes.end());
  return plan;
}

std::vector<std::string> carrier_notes(const Plan& plan, bool over_mpi) {
  std::vector<std::string> notes;
  const auto has = [&](topology::Carrier carrier) {
    return std::ranges::find(plan.dimensions, carrier, &topology::PlanDimension::carrier) !=
           plan.dimensions.end();
  };
  constexpr std::string_view instead =
      "their bytes go through shared memory inside a host and through the network between hosts";
  if (has(topology::Carrier::mpi) && !over_mpi) {
    notes.push_back(fmt::format("a plan wants dimensions carried by MPI, {}; {}",
                                topology::is_by_mpi_alone(plan)
                                    ? "but this job has no MPI"
                                    : "which is done only if all its dimensions are",
                                instead));
  }
  for (const topology::Carrier carrier : {topology::Carrier::cuda_ipc, topology::Carrier::nccl}) {
    if (!has(carrier)) continue;
    notes.push_back(
        fmt::format("a plan wants dimensions carried by {}, but this build moves data of CPUs "
                    "alone; {}",
                    to_string(carrier), instead));
  }
  return notes;
}

std::array<std::int64_t, 2> comparison_of(std::uint64_t value) noexcept {
  return {std::bit_cast<std::int64_t>(value), std::bit_cast<std::int64_t>(~value)};
}

bool are_equal(const std::array<std::int64_t, 2>& greatest) noexcept {
  // ~x decreases as x grows, so the second number is the complement of the minimum.
  return greatest[0] == ~greatest[1];
}

}  // namespace ddl::collectives
