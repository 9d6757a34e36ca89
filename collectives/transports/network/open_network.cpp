#include "collectives/transports/network/open_network.hpp"

#include <array>

#include "ddl/topology/as_index.hpp"
#include "topology/refuse.hpp"

#ifdef DDL_HAVE_UCX
#include "collectives/transports/network/ucx_network.hpp"
#endif

namespace ddl::collectives {
namespace {

void agree_on(NetworkChoice choice, Bootstrap& bootstrap) {
  const std::vector<std::string> all = bootstrap.all_gather(to_string(choice));
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    fail_with(ErrorCode::mismatch,
              "DDL_NETWORK is '{}' on rank 0 and '{}' on rank {}: set it to the same everywhere "
              "(mpirun -x DDL_NETWORK)",
              all[0], all[r], r);
  }
}

#ifndef DDL_HAVE_UCX

std::unique_ptr<Network> open_ucx(Bootstrap&, std::string& reason) {
  reason = "this build is without UCX (CMake option DDL_WITH_UCX)";
  return nullptr;
}

#endif

}  // namespace

const char* to_string(NetworkChoice choice) noexcept {
  constexpr std::array names = {"auto", "ucx", "mpi"};
  return names[as_index(choice)];
}

OpenedNetwork open_network(Bootstrap& bootstrap, NetworkChoice choice,
                           const std::function<std::unique_ptr<Network>()>& make_mpi) {
  agree_on(choice, bootstrap);
  OpenedNetwork opened;
  if (choice != NetworkChoice::mpi) {
    opened.network = open_ucx(bootstrap, opened.reason);
    if (opened.network != nullptr) return opened;
    if (choice == NetworkChoice::ucx) {
      fail_with(ErrorCode::transport,
                "DDL_NETWORK=ucx is not possible: {}. UCX_NET_DEVICES chooses network interfaces, "
                "UCX_LOG_LEVEL=info says more; DDL_NETWORK=mpi does without UCX",
                opened.reason);
    }
  }
  if (!make_mpi) {
    throw Error(
        ErrorCode::transport,
        choice == NetworkChoice::mpi
            ? std::string("DDL_NETWORK=mpi is not possible: this job was not started by MPI")
            : fmt::format("there is no network between the hosts: UCX cannot be used ({}), and there is no "
                          "MPI to use instead",
                          opened.reason));
  }
  opened.network = make_mpi();
  return opened;
}

}  // namespace ddl::collectives
