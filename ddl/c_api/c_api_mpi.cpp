#include <mpi.h>

#include <memory>
#include <string_view>

#include "collectives/transports/network/mpi_network.hpp"
#include "ddl/c_api/c_job.hpp"
#include "ddl/context/bootstrap_mpi.hpp"
#include "ddl/context/context_state.hpp"
#include "ddl/mpi_interposer/typed_buffer.hpp"
#include "topology/refuse.hpp"

namespace {

using namespace ddl;
using namespace ddl::c_api;
using collectives::check_mpi;

int forget(MPI_Comm, int, void* communicator, void*) {
  delete static_cast<Communicator*>(communicator);
  return MPI_SUCCESS;
}

/// The key of the attribute that attaches a Communicator to an MPI communicator.
int key() {
  static const int made = [] {
    int number = MPI_KEYVAL_INVALID;
    check_mpi(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, forget, &number, nullptr),
              "MPI_Comm_create_keyval");
    return number;
  }();
  return made;
}

/// The library's communicator of the same ranks in the same order. The first call for an MPI communicator
/// makes it and is collective.
Communicator& communicator_for(MPI_Comm communicator, Context& context) {
  void* known = nullptr;
  int is_known = 0;
  check_mpi(MPI_Comm_get_attr(communicator, key(), &known, &is_known), "MPI_Comm_get_attr");
  if (is_known != 0) return *static_cast<Communicator*>(known);
  const auto* const job = dynamic_cast<MpiBootstrap*>(membership_of(context).bootstrap.get());
  auto subgroup = subgroup_of(communicator_of(context), communicator,
                              job == nullptr ? MPI_COMM_WORLD : job->communicator());
  if (!subgroup) throw Error(ErrorCode::invalid_argument, "comm has processes that are not of this job");
  auto made = std::make_unique<Communicator>(std::move(subgroup));
  check_mpi(MPI_Comm_set_attr(communicator, key(), made.get()), "MPI_Comm_set_attr");
  return *made.release();
}

void require_same_options(const Job& job, const char* options) {
  if (options == nullptr || std::string_view(options).empty() || job.options() == options) return;
  fail_with(ErrorCode::unsupported,
            "options: found '{}', expected none, or those that the job began with, '{}'", options,
            job.options());
}

}  // namespace

extern "C" int ddl_allreduce_mpi(const char* options, void* data, int count, MPI_Datatype type, MPI_Op op,
                                 MPI_Comm comm) {
  return guarded("ddl_allreduce_mpi", [&](Job& job) {
    if (job.has_started()) {
      require_same_options(job, options);
    } else {
      job.start(options);
    }
    if (count < 0) fail_with(ErrorCode::invalid_argument, "count: found {}, expected 0 or more", count);
    if (comm == MPI_COMM_NULL) throw Error(ErrorCode::invalid_argument, "comm is MPI_COMM_NULL");
    const auto reduction = mpi::reduction_of(type, op);
    if (!reduction) {
      throw Error(ErrorCode::unsupported,
                  "this type, or this operation on it, is not the library's; use MPI_Allreduce");
    }
    communicator_for(comm, job.context())
        .all_reduce(data, as_index(count) * reduction->each, reduction->type, reduction->op);
  });
}
