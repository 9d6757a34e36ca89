#include "matrix/mpi_session.hpp"

#include <cstdlib>
#ifdef DDL_MATRIX_WITH_MPI
#include <mpi.h>
#endif

namespace matrix {

#ifdef DDL_MATRIX_WITH_MPI

bool is_under_mpirun() { return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr; }

MpiSession::MpiSession() {
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
}

MpiSession::~MpiSession() { MPI_Finalize(); }

int MpiSession::sum(int value) const {
  int result = 0;
  MPI_Allreduce(&value, &result, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  return result;
}

void MpiSession::abort() {
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

#else

bool is_under_mpirun() { return false; }
MpiSession::MpiSession() = default;
MpiSession::~MpiSession() = default;
int MpiSession::sum(int value) const { return value; }
void MpiSession::abort() { std::abort(); }

#endif

}  // namespace matrix
