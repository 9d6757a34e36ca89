#include "ddl/topology/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "ddl/hash.hpp"
#include "topology/json_text.hpp"
#include "topology/plan/algorithms.hpp"
#include "topology/refuse.hpp"

namespace ddl::topology {
namespace {

constexpr auto modes = all_to<Mode::mpi>;

/// "ring, tree or one_shot"
std::string alternatives(const auto& values) {
  std::string text;
  for (const auto& value : values) {
    const bool is_last = &value == &values.back();
    text += fmt::format("{}{}", text.empty() ? "" : is_last ? " or " : ", ", to_string(value));
  }
  return text;
}

std::string with_article(std::string_view name) {
  return fmt::format("a{} {}", name.starts_with('a') ? "n" : "", name);
}

void require_algorithm(const Plan& plan, int index) {
  const PlanDimension& dimension = plan.dimensions[as_index(index)];
  if (as_index(dimension.algorithm) >= all_algorithms().size() || dimension.carrier > Carrier::host_memory) {
    refuse("plan: dimensions[{}]: found algorithm {} and carrier {}, expected ones that exist", index,
           static_cast<int>(dimension.algorithm), static_cast<int>(dimension.carrier));
  }
  const std::span<const Algorithm> possible = algorithms_of(plan.collective);
  if (std::ranges::find(possible, dimension.algorithm) == possible.end()) {
    refuse("plan: dimensions[{}]: found {} in {}, expected {}", index, to_string(dimension.algorithm),
           with_article(to_string(plan.collective)), alternatives(possible));
  }
  if (index == 0 && plan.decomposition.ragged() && !takes_ragged(plan.collective, dimension.algorithm)) {
    std::vector<Algorithm> others(possible.begin(), possible.end());
    std::erase_if(others, [&](Algorithm other) { return !takes_ragged(plan.collective, other); });
    refuse(
        "plan: dimensions[0]: found {} in the ragged first dimension of {}, expected {}: with groups of "
        "different sizes, not every member has one to go on with in each other group",
        to_string(dimension.algorithm), to_string(plan.decomposition), alternatives(others));
  }
}

void require_wire(const Plan& plan, int index) {
  const PlanDimension& dimension = plan.dimensions[as_index(index)];
  if (!dimension.wire) return;
  const auto refuse_wire = [&](std::string_view why) {
    refuse("plan: dimensions[{}]: found the wire {}, {}", index, to_string(*dimension.wire), why);
  };
  if (*dimension.wire != DataType::bf16 && *dimension.wire != DataType::f16) {
    refuse_wire("expected bf16 or f16, or none");
  }
  const bool sums =
      plan.collective == Collective::all_reduce || plan.collective == Collective::reduce_scatter;
  if (plan.type != DataType::f32 || !sums) {
    refuse_wire(fmt::format("expected none: {} {} travels as it is", with_article(to_string(plan.type)),
                            to_string(plan.collective)));
  }
  if (dimension.carrier == Carrier::shared_memory || dimension.carrier == Carrier::cuda_ipc) {
    refuse_wire(
        fmt::format("expected none: by {} members read one another's memory", to_string(dimension.carrier)));
  }
  if (*dimension.wire != wire_of(plan)) {
    refuse_wire(fmt::format("expected {} as in the dimensions before it", to_string(wire_of(plan))));
  }
}

void require_order(const Plan& plan, const std::vector<int>& order, const std::string& name) {
  const auto ranks = as_index(plan.decomposition.ranks());
  if (order.size() != ranks) {
    refuse("plan: {}: found {} ranks, expected {}, as many as {} has positions", name, order.size(), ranks,
           to_string(plan.decomposition));
  }
  std::vector<bool> seen(ranks);
  for (std::size_t position = 0; position < ranks; ++position) {
    const int rank = order[position];
    if (rank < 0 || as_index(rank) >= ranks) {
      refuse("plan: {}[{}]: found rank {}, expected 0 to {}", name, position, rank, ranks - 1);
    }
    if (seen[as_index(rank)]) {
      refuse("plan: {}[{}]: found rank {} a second time, expected each once", name, position, rank);
    }
    seen[as_index(rank)] = true;
  }
}

}  // namespace

std::uint64_t hash(const Plan& plan) {
  Fnv fnv;
  fnv.add(static_cast<std::uint8_t>(plan.collective));
  const Decomposition& decomposition = plan.decomposition;
  for (const std::span<const int> sizes : {decomposition.group_sizes(), decomposition.outer()}) {
    fnv.add_number(sizes.size());
    for (const int size : sizes) fnv.add_number(static_cast<std::uint64_t>(size));
  }
  fnv.add_number(plan.dimensions.size());
  for (const PlanDimension& dimension : plan.dimensions) {
    fnv.add(static_cast<std::uint8_t>(dimension.algorithm));
    fnv.add(static_cast<std::uint8_t>(dimension.carrier));
  }
  fnv.add_number(plan.order.size());
  for (const int rank : plan.order) fnv.add_number(static_cast<std::uint64_t>(rank));
  fnv.add_number(static_cast<std::uint64_t>(plan.chunks));
  for (std::size_t i = 0; i < plan.dimensions.size(); ++i) {
    if (!plan.dimensions[i].wire) continue;
    fnv.add_number(i);
    fnv.add(static_cast<std::uint8_t>(*plan.dimensions[i].wire));
  }
  for (const std::vector<int>& order : plan.further_orders) {
    for (const int rank : order) fnv.add_number(static_cast<std::uint64_t>(rank));
  }
  return fnv.value();
}

std::span<const Collective> planned_collectives() noexcept {
  static constexpr std::array all = {Collective::all_reduce, Collective::broadcast,
                                     Collective::reduce_scatter, Collective::all_gather, Collective::reduce};
  return all;
}

std::string planned_names() { return alternatives(planned_collectives()); }

DataType wire_of(const Plan& plan) noexcept {
  for (const PlanDimension& dimension : plan.dimensions) {
    if (dimension.wire) return *dimension.wire;
  }
  return plan.type;
}

std::uint64_t elements_of(const Plan& plan) {
  const std::size_t bytes = size_of(plan.type);
  const std::uint64_t elements = plan.bytes / bytes + (plan.bytes % bytes == 0 ? 0 : 1);
  const std::uint64_t ranks = has_pieces(plan.collective) ? plan.order.size() : 1;
  return elements + (ranks - elements % ranks) % ranks;
}

bool is_for_hosts(const Plan& plan) noexcept {
  return std::ranges::none_of(plan.dimensions, [](const PlanDimension& dimension) {
    return dimension.carrier == Carrier::cuda_ipc || dimension.carrier == Carrier::nccl ||
           dimension.carrier == Carrier::host_memory;
  });
}

bool is_for_devices(const Plan& plan) noexcept {
  return std::ranges::none_of(plan.dimensions, [](const PlanDimension& dimension) {
    return dimension.carrier == Carrier::shared_memory || dimension.carrier == Carrier::mpi;
  });
}

std::string_view to_string(Mode mode) noexcept {
  constexpr std::array<std::string_view, modes.size()> names = {
      "explore", "rings", "nccl", "nccl_per_dimension", "scatter_gather", "mpi"};
  return name_in(names, mode);
}

char letter_of(Mode mode) noexcept {
  constexpr std::string_view letters = "prnbcm";
  const auto index = as_index(mode);
  return index < letters.size() ? letters[index] : '?';
}

Mode mode_from_letter(std::string_view letter) {
  for (const Mode mode : modes) {
    if (letter.size() == 1 && letter.front() == letter_of(mode)) return mode;
  }
  std::string known;
  for (const Mode mode : modes) {
    known += fmt::format("{}{} ({})", known.empty() ? "" : ", ", letter_of(mode), to_string(mode));
  }
  refuse("mode '{}': expected one of {}", printable(letter.substr(0, 20)), known);
}

std::string_view to_string(Carrier carrier) noexcept {
  constexpr std::array<std::string_view, 6> names = {"shared_memory", "cuda_ipc", "network",
                                                     "mpi",           "nccl",     "host_memory"};
  return name_in(names, carrier);
}

std::string carrier_text(const PlanDimension& dimension) {
  const std::string_view carrier = to_string(dimension.carrier);
  return dimension.wire ? fmt::format("{} in {}", carrier, to_string(*dimension.wire)) : std::string(carrier);
}

std::string_view to_string(PhaseKind kind) noexcept {
  constexpr std::array<std::string_view, 7> names = {"reduce_scatter", "all_gather", "reduce", "broadcast",
                                                     "all_reduce",     "scatter",    "gather"};
  return name_in(names, kind);
}

void require_valid(const Plan& plan) {
  if (algorithms_of(plan.collective).empty()) {
    refuse("plan: found collective {}, expected {}: a barrier needs no plan", to_string(plan.collective),
           planned_names());
  }
  if (plan.dimensions.size() != as_index(plan.decomposition.dimensions())) {
    refuse("plan: found {} dimensions, expected {}, as many as {} has", plan.dimensions.size(),
           plan.decomposition.dimensions(), to_string(plan.decomposition));
  }
  for (int i = 0; i < plan.decomposition.dimensions(); ++i) {
    require_algorithm(plan, i);
    require_wire(plan, i);
  }
  if (plan.chunks < 1 || plan.chunks > most_chunks) {
    refuse("plan: found {} chunks, expected 1 to {}", plan.chunks, most_chunks);
  }
  require_order(plan, plan.order, "order");
  if (plan.further_orders.size() > most_further_orders) {
    refuse("plan: found {} further orders, expected at most {}", plan.further_orders.size(),
           most_further_orders);
  }
  for (std::size_t i = 0; i < plan.further_orders.size(); ++i) {
    require_order(plan, plan.further_orders[i], fmt::format("further_orders[{}]", i));
  }
}

}  // namespace ddl::topology
