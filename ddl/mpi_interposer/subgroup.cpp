#include "ddl/mpi_interposer/subgroup.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "collectives/transports/network/mpi_network.hpp"

namespace ddl::mpi {

using collectives::check_mpi;

std::shared_ptr<collectives::CommunicatorImpl> subgroup_of(collectives::CommunicatorImpl& world,
                                                           MPI_Comm communicator, MPI_Comm mpi_world) {
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Group all = MPI_GROUP_NULL;
  int size = 0;
  check_mpi(PMPI_Comm_group(communicator, &group), "MPI_Comm_group");
  check_mpi(PMPI_Comm_group(mpi_world, &all), "MPI_Comm_group");
  PMPI_Group_size(group, &size);
  std::vector<int> own(static_cast<std::size_t>(size));
  std::vector<int> members(own.size());
  std::iota(own.begin(), own.end(), 0);
  const int translated = PMPI_Group_translate_ranks(group, size, own.data(), all, members.data());
  PMPI_Group_free(&group);
  PMPI_Group_free(&all);
  check_mpi(translated, "MPI_Group_translate_ranks");
  if (std::ranges::find(members, MPI_UNDEFINED) != members.end()) return nullptr;
  return world.subgroup(members, [&](std::int64_t value) {
    check_mpi(PMPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT64_T, MPI_MAX, communicator), "MPI_Allreduce");
    return value;
  });
}

}  // namespace ddl::mpi
