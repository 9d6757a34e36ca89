// MPI calls that begin or end a job or a communicator.

#include <mpi.h>

#include "ddl/mpi_interposer/interposer.hpp"

namespace ddl::mpi {
namespace {

/// Opens a new communicator at once, because opening is collective and a non-blocking call cannot do it.
int opened(int result, const MPI_Comm* communicator) {
  Interposer* const interposer = Interposer::current();
  if (result != MPI_SUCCESS || interposer == nullptr || *communicator == MPI_COMM_NULL) return result;
  return Interposer::guarded(*communicator, [&] {
    interposer->serving(*communicator, true);
    return result;
  });
}

}  // namespace
}  // namespace ddl::mpi

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

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* newcomm) { return opened(PMPI_Comm_dup(comm, newcomm), newcomm); }

int MPI_Comm_dup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm* newcomm) {
  return opened(PMPI_Comm_dup_with_info(comm, info, newcomm), newcomm);
}

int MPI_Comm_create(MPI_Comm comm, MPI_Group group, MPI_Comm* newcomm) {
  return opened(PMPI_Comm_create(comm, group, newcomm), newcomm);
}

int MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* newcomm) {
  return opened(PMPI_Comm_create_group(comm, group, tag, newcomm), newcomm);
}

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* newcomm) {
  return opened(PMPI_Comm_split(comm, color, key, newcomm), newcomm);
}

int MPI_Comm_split_type(MPI_Comm comm, int split_type, int key, MPI_Info info, MPI_Comm* newcomm) {
  return opened(PMPI_Comm_split_type(comm, split_type, key, info, newcomm), newcomm);
}

}  // extern "C"
