/* A C program on the C API, and what it says to wrong calls. `c_program wrong` on one rank; else any job. */
#include <stdio.h>
#include <string.h>
#ifdef WITH_MPI
#include <mpi.h>
#endif

#include "ddl/ddl.h"

static int failures = 0;

static void expect(int holds, const char* what) {
  if (holds) return;
  ++failures;
  fprintf(stderr, "FAILED: %s (last message: %s)\n", what, ddl_error_message());
}

static void expect_error(int result, int error, const char* word) {
  if (result == error && strstr(ddl_error_message(), word) != NULL) return;
  ++failures;
  fprintf(stderr, "FAILED: found %s: %s; expected %s and '%s'\n", ddl_error_name(result), ddl_error_message(),
          ddl_error_name(error), word);
}

static void call_wrongly(void) {
  float values[4] = {1, 2, 3, 4};
  void* memory = values;
  expect_error(ddl_allreduce(NULL, 4, DDL_F32, DDL_SUM), DDL_INVALID_ARGUMENT, "null");
  expect_error(ddl_allreduce(values, -1, DDL_F32, DDL_SUM), DDL_INVALID_ARGUMENT, "count: found -1");
  expect_error(ddl_allreduce(values, 4, 7, DDL_SUM), DDL_INVALID_ARGUMENT, "type: found 7");
  expect_error(ddl_allreduce(values, 4, DDL_F32, -2), DDL_INVALID_ARGUMENT, "op: found -2");
  expect_error(ddl_bcast(values, 4, DDL_F32, 1), DDL_INVALID_ARGUMENT, "root");
  expect_error(ddl_malloc(NULL, 64, 100), DDL_INVALID_ARGUMENT, "memory is null");
  expect_error(ddl_malloc(&memory, 48, 100), DDL_INVALID_ARGUMENT, "alignment: found 48");
  expect(memory == NULL, "memory is null after an error");
  expect_error(ddl_malloc(&memory, 64, (size_t)-1), DDL_INVALID_ARGUMENT, "bytes");
  expect_error(ddl_free(values), DDL_INVALID_ARGUMENT, "not from ddl_malloc");
  expect_error(ddl_init(NULL), DDL_INVALID_ARGUMENT, "second call");
}

static void reduce(void) {
  const int rank = ddl_rank(), size = ddl_size();
  const int64_t count = 100001;
  void* memory = NULL;
  float* values;
  int64_t i;
  int64_t number = rank == size - 1 ? 42 : 0;
  expect(ddl_malloc(&memory, 4096, (size_t)count * sizeof(float)) == DDL_OK, "ddl_malloc");
  expect((uintptr_t)memory % 4096 == 0, "alignment");
  values = memory;
  for (i = 0; i < count; ++i) values[i] = (float)(i % 100 + rank);
  expect(ddl_allreduce(values, count, DDL_F32, DDL_SUM) == DDL_OK, "ddl_allreduce");
  for (i = 0; i < count; ++i) {
    if (values[i] == (float)(size * (i % 100)) + (float)(size * (size - 1) / 2)) continue;
    expect(0, "sums");
    break;
  }
  expect(ddl_bcast(&number, 1, DDL_I64, size - 1) == DDL_OK && number == 42, "ddl_bcast");
  expect(ddl_barrier() == DDL_OK, "ddl_barrier");
  expect(ddl_allreduce(NULL, 0, DDL_F32, DDL_SUM) == DDL_OK, "nothing to reduce");
  expect(ddl_free(memory) == DDL_OK && ddl_free(NULL) == DDL_OK, "ddl_free");
  expect_error(ddl_free(memory), DDL_INVALID_ARGUMENT, "given back before");
}

#ifdef WITH_MPI
static void reduce_by_mpi(const char* options) {
  int rank, size, half_size, i;
  double values[3000];
  MPI_Comm half;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (i = 0; i < 3000; ++i) values[i] = rank + i;
  expect(ddl_allreduce_mpi(options, values, 3000, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD) == DDL_OK,
         "all of MPI");
  expect(values[7] == size - 1 + 7, "greatest");
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
  MPI_Comm_size(half, &half_size);
  for (i = 0; i < 3000; ++i) values[i] = 1;
  expect(ddl_allreduce_mpi("", values, 3000, MPI_DOUBLE, MPI_SUM, half) == DDL_OK, "half of MPI");
  expect(values[2999] == half_size, "their number");
  expect(ddl_allreduce_mpi(NULL, values, 3000, MPI_DOUBLE, MPI_SUM, half) == DDL_OK, "again");
  MPI_Comm_free(&half);
  expect_error(ddl_allreduce_mpi(options, values, -3, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD),
               DDL_INVALID_ARGUMENT, "count: found -3");
  expect_error(ddl_allreduce_mpi(options, values, 3, MPI_DOUBLE, MPI_BAND, MPI_COMM_WORLD), DDL_UNSUPPORTED,
               "MPI_Allreduce");
  expect_error(ddl_allreduce_mpi("-mode r -dbg_level 1", values, 3, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD),
               DDL_UNSUPPORTED, "options");
}
#endif

int main(int count, char** arguments) {
  const int is_wrong = count > 1 && strcmp(arguments[1], "wrong") == 0;
  float value = 1;
  expect(ddl_rank() == -1 && ddl_size() == -1 && ddl_local_rank() == -1, "no rank before ddl_init");
  expect_error(ddl_barrier(), DDL_NOT_INITIALIZED, "ddl_barrier: there is no job");
  expect_error(ddl_allreduce(&value, 1, DDL_F32, DDL_SUM), DDL_NOT_INITIALIZED,
               "between ddl_init and ddl_finalize");
  expect_error(ddl_finalize(), DDL_NOT_INITIALIZED, "ddl_finalize");
  expect_error(ddl_init("-mod p"), DDL_INVALID_ARGUMENT, "the nearest is -mode");
#ifdef WITH_MPI
  MPI_Init(&count, &arguments);
  reduce_by_mpi("-mode p"); /* begins the job */
#else
  expect(ddl_init("-mode p") == DDL_OK, "ddl_init");
#endif
  if (ddl_size() < 1) return 1;
  is_wrong ? call_wrongly() : reduce();
  if (ddl_rank() == 0) printf("%d ranks, %d failures\n", ddl_size(), failures);
  expect(ddl_finalize() == DDL_OK, "ddl_finalize");
  expect_error(ddl_barrier(), DDL_NOT_INITIALIZED, "there is no job");
  expect_error(ddl_init(NULL), DDL_INVALID_ARGUMENT, "has ended");
#ifdef WITH_MPI
  MPI_Finalize();
#endif
  return failures == 0 ? 0 : 1;
}
