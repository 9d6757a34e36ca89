// MPI calls that wait for requests or test them: they complete the engine's requests, then call MPI.

#include <mpi.h>

#include <span>

#include "ddl/mpi_interposer/interposer.hpp"

namespace ddl::mpi {
namespace {

/// Null if no request is in flight in the engine.
OpenRequests* open_requests() {
  Interposer* const interposer = Interposer::current();
  if (interposer == nullptr || interposer->requests().empty()) return nullptr;
  return &interposer->requests();
}

std::span<const MPI_Request> all_of(const MPI_Request* requests, int count) {
  if (requests == nullptr || count < 0) return {};  // MPI reports the error
  return {requests, as_index(count)};
}

void look() {
  if (OpenRequests* const open = open_requests()) open->look();
}

void wait_for(std::span<const MPI_Request> requests) {
  OpenRequests* const open = open_requests();
  if (open == nullptr) return;
  const collectives::Meanwhile meanwhile(&Interposer::drive_mpi);
  open->wait(requests);
}

/// Calls `test` until it returns true, or returns false once none of the requests is in flight in the engine.
template <typename Test>
bool poll(std::span<const MPI_Request> requests, const Test& test) {
  collectives::Naps naps = collectives::Naps::for_own();
  for (;;) {
    OpenRequests* const open = open_requests();
    if (open == nullptr) return false;
    open->look();
    if (test()) return true;
    if (!open->wait_for_some(requests, naps.next())) return false;
  }
}

}  // namespace
}  // namespace ddl::mpi

using namespace ddl::mpi;

extern "C" {

int MPI_Wait(MPI_Request* request, MPI_Status* status) {
  wait_for(all_of(request, 1));
  return PMPI_Wait(request, status);
}

int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[]) {
  wait_for(all_of(requests, count));
  return PMPI_Waitall(count, requests, statuses);
}

int MPI_Waitany(int count, MPI_Request requests[], int* index, MPI_Status* status) {
  int result = MPI_SUCCESS;
  const bool is_over = poll(all_of(requests, count), [&] {
    int over = 0;
    result = PMPI_Testany(count, requests, index, &over, status);
    return result != MPI_SUCCESS || over != 0;
  });
  return is_over ? result : PMPI_Waitany(count, requests, index, status);
}

int MPI_Waitsome(int incount, MPI_Request requests[], int* outcount, int indices[], MPI_Status statuses[]) {
  int result = MPI_SUCCESS;
  const bool is_over = poll(all_of(requests, incount), [&] {
    result = PMPI_Testsome(incount, requests, outcount, indices, statuses);
    return result != MPI_SUCCESS || *outcount != 0;
  });
  return is_over ? result : PMPI_Waitsome(incount, requests, outcount, indices, statuses);
}

int MPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  look();
  return PMPI_Test(request, flag, status);
}

int MPI_Testall(int count, MPI_Request requests[], int* flag, MPI_Status statuses[]) {
  look();
  return PMPI_Testall(count, requests, flag, statuses);
}

int MPI_Testany(int count, MPI_Request requests[], int* index, int* flag, MPI_Status* status) {
  look();
  return PMPI_Testany(count, requests, index, flag, status);
}

int MPI_Testsome(int incount, MPI_Request requests[], int* outcount, int indices[], MPI_Status statuses[]) {
  look();
  return PMPI_Testsome(incount, requests, outcount, indices, statuses);
}

int MPI_Request_get_status(MPI_Request request, int* flag, MPI_Status* status) {
  look();
  return PMPI_Request_get_status(request, flag, status);
}

}  // extern "C"
