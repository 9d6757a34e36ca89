#pragma once

#include <mpi.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "collectives/communicator/communicator_impl.hpp"
#include "ddl/context/process_bootstrap.hpp"

namespace ddl {

/// Bootstrap for processes of an MPI job. Made and used by the thread that calls MPI (MPI_THREAD_FUNNELED).
/// The library calls MPI by its profiling names (PMPI_), which libddl_mpi does not intercept.
class MpiBootstrap final : public ProcessBootstrap {
 public:
  /// True if mpirun started this process, or the program has called MPI_Init.
  static bool is_present();

  /// For all processes of the MPI job. Calls MPI_Init unless the program has. Throws `transport` if MPI has
  /// been finalized already. If MPI_Init does not return before `deadline`, the process ends with a message,
  /// because MPI_Init cannot be interrupted in another way.
  explicit MpiBootstrap(std::chrono::milliseconds deadline);
  /// For the processes of `communicator`, in their order; keeps a duplicate of it. Throws `invalid_argument`
  /// unless MPI is initialized and `communicator` is an intracommunicator. Collective over it.
  MpiBootstrap(std::chrono::milliseconds deadline, MPI_Comm communicator);
  /// Calls MPI_Finalize if the constructor called MPI_Init, unless the job was abandoned.
  ~MpiBootstrap() override;

  /// Throws `timeout` if a rank has not arrived before the deadline, `peer_failed` once the watch reports a
  /// failure of the job.
  std::vector<std::string> all_gather(std::string_view bytes) override;
  void abort(int status) noexcept override;
  void abandon() noexcept override { abandoned_ = true; }
  std::unique_ptr<collectives::Network> make_mpi_network() override;
  [[nodiscard]] MPI_Comm communicator() const noexcept { return communicator_; }

 private:
  void join(MPI_Comm communicator);
  /// `started`: the return code of the call that made the request.
  void await(int started, MPI_Request& request, const char* call);

  MPI_Comm communicator_ = MPI_COMM_NULL;
  bool called_init_ = false;
  bool abandoned_ = false;
};

/// The engine's communicator with the same ranks, in the same order, as the MPI communicator. `world` holds
/// the ranks of `mpi_world`; returns null if `communicator` has others. Collective over `communicator`.
/// Throws `transport` if MPI fails, and as CommunicatorImpl::subgroup.
std::shared_ptr<collectives::CommunicatorImpl> subgroup_of(collectives::CommunicatorImpl& world,
                                                           MPI_Comm communicator,
                                                           MPI_Comm mpi_world = MPI_COMM_WORLD);

}  // namespace ddl
