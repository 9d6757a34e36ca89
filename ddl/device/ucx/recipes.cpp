#include "ddl/device/ucx/recipes.hpp"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "ddl/topology/program.hpp"

namespace ddl::device {
namespace {

using collectives::PreparedProgram;
using topology::Collective;

constexpr std::size_t most_recipes = 512;
constexpr std::size_t line_bytes = 128;

/// The scratch memory that any rank takes, in multiples of what the plan is lowered for; rounded up.
std::size_t scratch_factor(const topology::Plan& plan) {
  const std::size_t count = 64 * plan.order.size() * static_cast<std::size_t>(plan.chunks);
  std::size_t most = 0;
  for (const topology::Program& program : topology::lower_all(plan, count).ranks) {
    most = std::max(most, program.scratch);
  }
  return (most + count - 1) / count;
}

}  // namespace

Recipes::Recipes(GroupMembers& members, std::size_t memory, std::size_t message)
    : members_(members), memory_(memory), message_(message) {
  meeting_ = prepared(topology::lower_barrier(members.size(), members.rank()), 1, DataType::u8);
}

const Recipe& Recipes::of(const DeviceCall& call) {
  const Key key{call.collective, call.root, call.count, call.type, topology::hash(*call.steps)};
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  Recipe recipe = made(call);
  if (known_.size() >= most_recipes) known_.clear();
  return known_.emplace(key, std::move(recipe)).first->second;
}

Recipe Recipes::made(const DeviceCall& call) const {
  const std::size_t pieces = pieces_of(call.collective, members_.size());
  Recipe recipe;
  const topology::Plan& plan = *call.steps;
  recipe.plan = topology::hash(plan);
  recipe.at_once = most_at_once(call, plan);
  const auto lowered = [&](std::size_t count) {
    return prepared(topology::lower(plan, members_.rank(), count * pieces, call.root), count * pieces,
                    call.type);
  };
  recipe.part = lowered(recipe.at_once);
  const std::size_t rest = call.count % recipe.at_once;
  if (rest != 0) recipe.last = lowered(rest);
  return recipe;
}

std::size_t Recipes::most_at_once(const DeviceCall& call, const topology::Plan& plan) const {
  const std::size_t element = size_of(call.type);
  const std::size_t pieces = pieces_of(call.collective, members_.size());
  const std::size_t room = memory_ / element / pieces;
  std::size_t most = call.count;
  if (call.collective == Collective::reduce || call.collective == Collective::reduce_scatter) {
    most = std::min(most, room);
  }
  const std::size_t factor = scratch_factor(plan);
  if (factor > 0) most = std::min(most, room / (factor + 1));  // pieces are rounded up
  if (most == call.count) return most;
  const std::size_t line = line_bytes / element;
  return std::max(most / line * line, std::size_t{1});
}

std::unique_ptr<const PreparedProgram> Recipes::prepared(topology::Program program, std::size_t elements,
                                                         DataType type) const {
  const auto job = static_cast<std::size_t>(members_.context().size());
  const collectives::Ways by_network{.member = std::vector<int>(job, collectives::Ways::no_member),
                                     .message_bytes = {message_, message_}};
  return std::make_unique<const PreparedProgram>(std::move(program), elements, size_of(type),
                                                 members_.ranks(), by_network);
}

}  // namespace ddl::device
