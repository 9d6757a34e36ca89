#pragma once

#include <memory>

#include "collectives/bootstrap.hpp"
#include "collectives/network/network.hpp"

namespace ddl {

/// The processes of an MPI job. Made and used by the thread that calls MPI (MPI_THREAD_FUNNELED).
class MpiBootstrap final : public collectives::Bootstrap {
 public:
  /// True if mpirun started this process, or the program has called MPI_Init.
  static bool is_present();

  /// Calls MPI_Init unless the program has. Throws `transport` if MPI has been finalized already.
  MpiBootstrap();
  /// Calls MPI_Finalize if the constructor called MPI_Init, unless the job was abandoned.
  ~MpiBootstrap() override;

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return size_; }
  std::vector<std::string> all_gather(std::string_view bytes) override;
  void abort(int status) noexcept override;
  void abandon() noexcept override { abandoned_ = true; }

  /// Messages to all ranks, through MPI. Collective. Must be gone before this object is.
  std::unique_ptr<collectives::Network> make_mpi_network();

 private:
  struct Handles;
  std::unique_ptr<Handles> handles_;
  int rank_ = 0;
  int size_ = 1;
  bool called_init_ = false;
  bool abandoned_ = false;
};

}  // namespace ddl
