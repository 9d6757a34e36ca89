#include <fmt/format.h>
#include <mpi.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "ddl/c_api/c_job.hpp"
#include "ddl/error.hpp"
#include "ddl/mpi_interposer/typed_buffer.hpp"

namespace {

using ddl::Communicator;
using ddl::Error;
using ddl::ErrorCode;
using ddl::c_api::Job;

void check(int result, const char* function) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(result, text, &length);
  throw Error(ErrorCode::transport, fmt::format("{}: {}", function, text));
}

int forget(MPI_Comm, int, void* communicator, void*) {
  delete static_cast<Communicator*>(communicator);
  return MPI_SUCCESS;
}

/// What hangs on MPI's communicators.
int key() {
  static const int made = [] {
    int number = MPI_KEYVAL_INVALID;
    check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, forget, &number, nullptr), "MPI_Comm_create_keyval");
    return number;
  }();
  return made;
}

/// The numbers in the job of an MPI communicator's ranks.
std::vector<int> ranks_of(MPI_Comm communicator) {
  int size = 0;
  check(MPI_Comm_size(communicator, &size), "MPI_Comm_size");
  std::vector<int> own(static_cast<std::size_t>(size)), in_job(own.size());
  for (int rank = 0; rank < size; ++rank) own[static_cast<std::size_t>(rank)] = rank;
  MPI_Group group = MPI_GROUP_NULL, all = MPI_GROUP_NULL;
  check(MPI_Comm_group(communicator, &group), "MPI_Comm_group");
  check(MPI_Comm_group(MPI_COMM_WORLD, &all), "MPI_Comm_group");
  const int translated = MPI_Group_translate_ranks(group, size, own.data(), all, in_job.data());
  MPI_Group_free(&group);
  MPI_Group_free(&all);
  check(translated, "MPI_Group_translate_ranks");
  return in_job;
}

/// Of the same ranks as MPI's, in their order; made when first asked for, which all do at the same time.
Communicator& communicator_of(ddl::Context& context, MPI_Comm communicator) {
  void* known = nullptr;
  int is_known = 0;
  check(MPI_Comm_get_attr(communicator, key(), &known, &is_known), "MPI_Comm_get_attr");
  if (is_known != 0) return *static_cast<Communicator*>(known);
  const std::vector<int> ranks = ranks_of(communicator);
  auto made = std::make_unique<Communicator>(context.communicator().subgroup(ranks, [&](std::int64_t value) {
    check(MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT64_T, MPI_MAX, communicator), "MPI_Allreduce");
    return value;
  }));
  check(MPI_Comm_set_attr(communicator, key(), made.get()), "MPI_Comm_set_attr");
  return *made.release();
}

void require_same_options(const Job& job, const char* options) {
  if (options == nullptr || std::string_view(options).empty() || job.options() == options) return;
  throw Error(ErrorCode::unsupported,
              fmt::format("options: found '{}', expected none, or those that the job began with, '{}'",
                          options, job.options()));
}

}  // namespace

extern "C" int ddl_allreduce_mpi(const char* options, void* data, int count, MPI_Datatype type, MPI_Op op,
                                 MPI_Comm comm) {
  return ddl::c_api::guarded("ddl_allreduce_mpi", [&](Job& job) -> int {
    if (job.context() == nullptr) {
      job.start(options);
    } else {
      require_same_options(job, options);
    }
    if (count < 0) {
      throw Error(ErrorCode::invalid_argument, fmt::format("count: found {}, expected 0 or more", count));
    }
    if (comm == MPI_COMM_NULL) throw Error(ErrorCode::invalid_argument, "comm is MPI_COMM_NULL");
    const auto reduction = ddl::mpi::reduction_of(type, op);
    if (!reduction) {
      throw Error(ErrorCode::unsupported,
                  "this type, or this operation on it, is not the library's; use MPI_Allreduce");
    }
    communicator_of(*job.context(), comm)
        .all_reduce(data, static_cast<std::size_t>(count) * reduction->each, reduction->type, reduction->op);
    return static_cast<int>(DDL_OK);
  });
}
