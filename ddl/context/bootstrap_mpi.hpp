#pragma once

#include <mpi.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "ddl/context/process_bootstrap.hpp"

namespace ddl {

/// The processes of an MPI job. Made and used by the thread that calls MPI (MPI_THREAD_FUNNELED). The library
/// calls MPI by its profiling names (PMPI_), which libddl_mpi does not serve.
class MpiBootstrap final : public ProcessBootstrap {
 public:
  /// True if mpirun started this process, or the program has called MPI_Init.
  static bool is_present();

  /// Calls MPI_Init unless the program has. Throws `transport` if MPI has been finalized already. A MPI_Init
  /// that has not returned after `deadline` ends the process, with a message: nothing else can be done about
  /// it.
  explicit MpiBootstrap(std::chrono::milliseconds deadline);
  /// The processes of `communicator`, of which it keeps a duplicate, in their order. Throws
  /// `invalid_argument` unless MPI runs and this is an intracommunicator. Collective over it.
  MpiBootstrap(std::chrono::milliseconds deadline, MPI_Comm communicator);
  /// Calls MPI_Finalize if the constructor called MPI_Init, unless the job was abandoned.
  ~MpiBootstrap() override;

  /// Throws `timeout` if some rank has not come after the deadline, `peer_failed` once the watch says that
  /// the job fails.
  std::vector<std::string> all_gather(std::string_view bytes) override;
  void abort(int status) noexcept override;
  void abandon() noexcept override { abandoned_ = true; }
  std::unique_ptr<collectives::Network> make_mpi_network() override;
  [[nodiscard]] MPI_Comm communicator() const noexcept { return communicator_; }

 private:
  void join(MPI_Comm communicator);
  /// `started`: what the call that made the request returned.
  void await(int started, MPI_Request& request, const char* call);

  MPI_Comm communicator_ = MPI_COMM_NULL;
  bool called_init_ = false;
  bool abandoned_ = false;
};

}  // namespace ddl
