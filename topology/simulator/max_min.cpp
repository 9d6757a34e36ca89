#include "topology/simulator/max_min.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <unordered_map>
#include <utility>

#include "ddl/hash.hpp"
#include "topology/graph/link_figures.hpp"

namespace ddl::topology {
namespace {

constexpr double no_level = std::numeric_limits<double>::infinity();
// Sums of the same rates in different orders differ by less, rates that matter by far more.
constexpr double tolerance = 1e-9;
constexpr double same_share = 1e-12;
constexpr int most_rounds = 6;

struct Resource {
  double capacity;
  std::uint64_t flows = 0;  // sum of the hashes of its flows
};

}  // namespace

MaxMin::MaxMin(std::vector<double> capacities, FlowPaths paths)
    : paths_(std::move(paths)),
      position_(paths_.resources.size()),
      flows_(paths_.flows()),
      resources_(capacities.size()) {
  for (std::size_t i = 0; i < capacities.size(); ++i) resources_[i].capacity = capacities[i];
}

void MaxMin::start(std::uint32_t flow) {
  const auto path = paths_.of(flow);
  for (std::uint32_t hop = 0; hop < path.size(); ++hop) {
    std::vector<Use>& uses = resources_[path[hop]].uses;
    position_[paths_.begin[flow] + hop] = static_cast<std::uint32_t>(uses.size());
    uses.push_back({flow, hop});
  }
  flows_[flow].rate = 0;
  flows_[flow].bottleneck = none;
  started_.push_back(flow);
}

void MaxMin::stop(std::uint32_t flow) {
  const auto path = paths_.of(flow);
  for (std::uint32_t hop = 0; hop < path.size(); ++hop) {
    Resource& resource = resources_[path[hop]];
    const std::uint32_t at = position_[paths_.begin[flow] + hop];
    const Use last = resource.uses.back();
    resource.uses[at] = last;
    position_[paths_.begin[last.flow] + last.hop] = at;
    resource.uses.pop_back();
    resource.load = resource.uses.empty() ? 0 : resource.load - flows_[flow].rate;
    if (!resource.uses.empty() && !resource.lost_flow) {
      resource.lost_flow = true;
      freed_.push_back(path[hop]);
    }
  }
}

bool MaxMin::is_alone(std::uint32_t flow) const {
  return std::ranges::all_of(paths_.of(flow),
                             [&](std::uint32_t resource) { return resources_[resource].uses.size() == 1; });
}

void MaxMin::set_alone(std::uint32_t flow) {
  const auto path = paths_.of(flow);
  const std::uint32_t bottleneck = *std::ranges::min_element(
      path, {}, [&](std::uint32_t resource) { return resources_[resource].capacity; });
  const double rate = resources_[bottleneck].capacity;
  flows_[flow].rate = rate;
  flows_[flow].bottleneck = bottleneck;
  for (const std::uint32_t resource : path) resources_[resource].load = rate;
  changed_.push_back(flow);
}

void MaxMin::affect(std::uint32_t index) {
  Flow& flow = flows_[index];
  if (flow.affected == round_) return;
  flow.affected = round_;
  affected_.push_back(index);
  for (const std::uint32_t resource_index : paths_.of(index)) {
    Resource& resource = resources_[resource_index];
    if (resource.touched != round_) {
      resource.touched = round_;
      resource.residual = resource.capacity - resource.load;
      resource.affected_flows = 0;
      touched_.push_back(resource_index);
    }
    resource.residual += flow.rate;
    ++resource.affected_flows;
  }
}

double MaxMin::least_rate(std::uint32_t flow) const {
  double rate = no_level;
  for (const std::uint32_t index : paths_.of(flow)) {
    const Resource& resource = resources_[index];
    rate = std::min(rate, resource.capacity / static_cast<double>(resource.uses.size()));
  }
  return rate;
}

/// Guesses which flows give way to a new one: none that has a lower rate than the new one will get.
void MaxMin::affect_around(std::uint32_t started) {
  affect(started);
  const double share = least_rate(started);
  for (const std::uint32_t index : paths_.of(started)) {
    if (resources_[index].residual >= share * resources_[index].affected_flows) continue;
    for (const Use use : resources_[index].uses) {
      if (flows_[use.flow].rate > share) affect(use.flow);
    }
  }
}

void MaxMin::affect_component() {
  for (std::size_t i = 0; i < touched_.size(); ++i) {
    for (const Use use : resources_[touched_[i]].uses) affect(use.flow);
  }
}

/// Progressive filling of the affected flows.
void MaxMin::fill() {
  ++fill_;
  work_ += affected_.size();
  heap_.clear();
  for (const std::uint32_t index : touched_) {
    Resource& resource = resources_[index];
    resource.left = std::max(resource.residual, 0.0);
    resource.unfrozen = resource.affected_flows;
    resource.level = no_level;
    heap_.push_back({resource.left / resource.unfrozen, index});
  }
  std::ranges::make_heap(heap_, std::greater<>{});
  double level = 0;
  while (!heap_.empty()) {
    std::ranges::pop_heap(heap_, std::greater<>{});
    const Share least = heap_.back();
    heap_.pop_back();
    Resource& resource = resources_[least.resource];
    if (resource.unfrozen == 0) continue;
    const double share = std::max(resource.left, 0.0) / resource.unfrozen;
    if (share > least.share * (1 + same_share)) {
      heap_.push_back({share, least.resource});
      std::ranges::push_heap(heap_, std::greater<>{});
      continue;
    }
    // Equal flows get rates that are equal to the last bit.
    if (share > level * (1 + same_share)) level = share;
    resource.level = level;
    for (const Use use : resource.uses) {
      Flow& flow = flows_[use.flow];
      if (flow.affected != round_ || flow.frozen == fill_) continue;
      flow.frozen = fill_;
      flow.new_rate = level;
      flow.bottleneck = least.resource;
      for (const std::uint32_t other : paths_.of(use.flow)) {
        resources_[other].left -= level;
        --resources_[other].unfrozen;
      }
    }
  }
}

/// Adds unaffected flows whose rates are not right any more. Returns whether there are any.
bool MaxMin::affect_more() {
  const std::size_t before = affected_.size();
  for (std::size_t i = 0, count = touched_.size(); i < count; ++i) {
    const std::uint32_t index = touched_[i];
    const Resource& resource = resources_[index];
    if (resource.affected_flows == resource.uses.size()) continue;
    double highest = 0;
    for (const Use use : resource.uses) {
      const Flow& flow = flows_[use.flow];
      if (flow.frozen == fill_) highest = std::max(highest, flow.new_rate);
    }
    const bool is_full = resource.left <= tolerance * resource.capacity;
    for (const Use use : resource.uses) {
      const Flow& flow = flows_[use.flow];
      if (flow.affected == round_) continue;
      const bool has_too_much = flow.rate > resource.level * (1 + tolerance);
      const bool may_get_more =
          flow.bottleneck == index && (!is_full || flow.rate < highest * (1 - tolerance));
      if (has_too_much || may_get_more) affect(use.flow);
    }
  }
  return affected_.size() > before;
}

void MaxMin::apply() {
  for (const std::uint32_t index : touched_) {
    resources_[index].load = resources_[index].capacity - resources_[index].left;
  }
  for (const std::uint32_t index : affected_) {
    Flow& flow = flows_[index];
    const double change = flow.new_rate - flow.rate;
    if (change > same_share * flow.rate || change < -same_share * flow.rate) {
      flow.rate = flow.new_rate;
      changed_.push_back(index);
    }
  }
}

std::span<const std::uint32_t> MaxMin::settle() {
  changed_.clear();
  affected_.clear();
  touched_.clear();
  ++round_;
  for (const std::uint32_t index : freed_) {
    resources_[index].lost_flow = false;
    for (const Use use : resources_[index].uses) {
      if (flows_[use.flow].bottleneck == index) affect(use.flow);
    }
  }
  freed_.clear();
  for (const std::uint32_t flow : started_) {
    if (is_alone(flow)) {
      set_alone(flow);
    } else {
      affect_around(flow);
    }
  }
  started_.clear();
  if (affected_.empty()) return changed_;
  fill();
  for (int rounds = 1; affect_more(); ++rounds) {
    if (rounds == most_rounds) affect_component();
    fill();
  }
  apply();
  return changed_;
}

Sharing share_channels(const Topology& topology, std::span<const std::span<const Channel>> routes) {
  std::unordered_map<Channel, std::uint32_t> index_of;
  std::vector<Resource> resources;
  FlowPaths all;
  for (std::uint32_t flow = 0; flow < routes.size(); ++flow) {
    for (const Channel channel : routes[flow]) {
      const Link& link = topology.link(link_of(channel));
      const Channel shared = link.duplex == Duplex::half ? 2 * link_of(channel) : channel;
      const auto [entry, is_new] = index_of.try_emplace(shared, static_cast<std::uint32_t>(resources.size()));
      if (is_new) resources.push_back({link.bandwidth * figures::bytes_per_us});
      resources[entry->second].flows += mix(flow);
      all.resources.push_back(entry->second);
    }
    all.begin.push_back(static_cast<std::uint32_t>(all.resources.size()));
  }

  std::unordered_map<std::uint64_t, std::uint32_t> narrowest;
  for (std::uint32_t i = 0; i < resources.size(); ++i) {
    const auto [entry, is_new] = narrowest.try_emplace(resources[i].flows, i);
    if (!is_new && resources[i].capacity < resources[entry->second].capacity) entry->second = i;
  }
  Sharing result;
  std::vector<std::uint32_t> number(resources.size(), UINT32_MAX);
  for (std::uint32_t i = 0; i < resources.size(); ++i) {
    if (narrowest.at(resources[i].flows) != i) continue;
    number[i] = static_cast<std::uint32_t>(result.capacities.size());
    result.capacities.push_back(resources[i].capacity);
  }
  result.paths.begin.reserve(all.begin.size());
  for (std::uint32_t flow = 0; flow < all.flows(); ++flow) {
    for (const std::uint32_t resource : all.of(flow)) {
      if (number[resource] != UINT32_MAX) result.paths.resources.push_back(number[resource]);
    }
    result.paths.begin.push_back(static_cast<std::uint32_t>(result.paths.resources.size()));
  }
  return result;
}

}  // namespace ddl::topology
