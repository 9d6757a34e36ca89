// The collectives that mpi_collectives.c calls, by oneCCL, for mpi_program.py --intel: linked with that
// program, these functions take the place of MPI's.
#include <mpi.h>

#include <cstddef>
#include <oneapi/ccl.hpp>
#include <optional>

namespace {

std::optional<ccl::communicator> communicator;

const ccl::communicator& all_ranks() {
  if (!communicator) {
    ccl::init();
    int rank = 0;
    int size = 0;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    ccl::kvs::address_type address{};
    ccl::shared_ptr_class<ccl::kvs> store;
    if (rank == 0) {
      store = ccl::create_main_kvs();
      address = store->get_address();
    }
    PMPI_Bcast(address.data(), static_cast<int>(address.size()), MPI_BYTE, 0, MPI_COMM_WORLD);
    if (rank != 0) store = ccl::create_kvs(address);
    communicator.emplace(ccl::create_communicator(size, rank, store));
  }
  return *communicator;
}

}  // namespace

extern "C" {

int MPI_Allreduce(const void* in, void* out, int count, MPI_Datatype /*float*/, MPI_Op /*sum*/,
                  MPI_Comm /*world*/) {
  ccl::allreduce(in, out, static_cast<std::size_t>(count), ccl::datatype::float32, ccl::reduction::sum,
                 all_ranks())
      .wait();
  return MPI_SUCCESS;
}

int MPI_Bcast(void* data, int count, MPI_Datatype /*float*/, int root, MPI_Comm /*world*/) {
  ccl::broadcast(data, static_cast<std::size_t>(count), ccl::datatype::float32, root, all_ranks()).wait();
  return MPI_SUCCESS;
}

int MPI_Reduce_scatter_block(const void* in, void* out, int count, MPI_Datatype /*float*/, MPI_Op /*sum*/,
                             MPI_Comm /*world*/) {
  ccl::reduce_scatter(in, out, static_cast<std::size_t>(count), ccl::datatype::float32, ccl::reduction::sum,
                      all_ranks())
      .wait();
  return MPI_SUCCESS;
}

int MPI_Allgather(const void* in, int count, MPI_Datatype /*float*/, void* out, int /*the same*/,
                  MPI_Datatype /*float*/, MPI_Comm /*world*/) {
  ccl::allgather(in, out, static_cast<std::size_t>(count), ccl::datatype::float32, all_ranks()).wait();
  return MPI_SUCCESS;
}

int MPI_Reduce(const void* in, void* out, int count, MPI_Datatype /*float*/, MPI_Op /*sum*/, int root,
               MPI_Comm /*world*/) {
  ccl::reduce(in, out, static_cast<std::size_t>(count), ccl::datatype::float32, ccl::reduction::sum, root,
              all_ranks())
      .wait();
  return MPI_SUCCESS;
}

int MPI_Init(int* argc, char*** argv) {
  int provided = 0;
  return PMPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided);  // oneCCL asks for it
}

int MPI_Finalize() {
  communicator.reset();
  return PMPI_Finalize();
}

}  // extern "C"
