#include "collectives/communicator/plan_carriers.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ddl/topology/program.hpp"

namespace ddl::collectives {

using topology::Carrier;
using topology::Plan;
using topology::PlanDimension;

std::vector<std::string> carrier_notes(const Plan& plan, bool over_mpi) {
  std::vector<std::string> notes;
  const auto has = [&](Carrier carrier) {
    return std::ranges::find(plan.dimensions, carrier, &PlanDimension::carrier) != plan.dimensions.end();
  };
  constexpr std::string_view instead =
      "their bytes go through shared memory inside a host and through the network between hosts";
  if (has(Carrier::mpi) && !over_mpi) {
    notes.push_back(fmt::format("a plan wants dimensions carried by MPI, {}; {}",
                                topology::is_by_mpi_alone(plan)
                                    ? "but this job has no MPI"
                                    : "which is done only if all its dimensions are",
                                instead));
  }
  for (const Carrier carrier : {Carrier::cuda_ipc, Carrier::nccl}) {
    if (!has(carrier)) continue;
    notes.push_back(
        fmt::format("a plan wants dimensions carried by {}, but this build moves data of CPUs "
                    "alone; {}",
                    to_string(carrier), instead));
  }
  return notes;
}

}  // namespace ddl::collectives
