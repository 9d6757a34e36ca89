// MPI calls that begin or end a job, or allocate memory.

#include <mpi.h>

#include "ddl/mpi_interposer/interposer.hpp"

using namespace ddl::mpi;

extern "C" {

int MPI_Init(int* argc, char*** argv) {
  const int result = PMPI_Init(argc, argv);
  if (result == MPI_SUCCESS) Interposer::start();
  return result;
}

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  const int result = PMPI_Init_thread(argc, argv, required, provided);
  if (result == MPI_SUCCESS) Interposer::start();
  return result;
}

int MPI_Finalize(void) {
  Interposer::stop();
  return PMPI_Finalize();
}

/* Collectives on such memory need no copies inside a host. */
int MPI_Alloc_mem(MPI_Aint size, MPI_Info info, void* baseptr) {
  Interposer* const interposer = Interposer::current();
  void* const data =
      interposer != nullptr && size > 0 ? interposer->allocate(static_cast<std::size_t>(size)) : nullptr;
  if (data == nullptr) return PMPI_Alloc_mem(size, info, baseptr);
  *static_cast<void**>(baseptr) = data;
  return MPI_SUCCESS;
}

int MPI_Free_mem(void* base) {
  Interposer* const interposer = Interposer::current();
  if (interposer != nullptr && interposer->release(base)) return MPI_SUCCESS;
  return PMPI_Free_mem(base);
}

}  // extern "C"
