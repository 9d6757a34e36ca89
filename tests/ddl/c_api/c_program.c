/* A C program that uses the C API. `c_program wrong`, on one rank, checks the errors of wrong calls;
 * `c_program abort` and `c_program nowait` are ended by an error; `c_program DIRECTORY`, in any job, uses a
 * directory for checkpoints. */
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

/* Steps that are never waited for, one of a reducer that is freed, another until ddl_finalize. */
static void leave_steps(float* values) {
  ddl_parameter one[1] = {{.count = 4, .type = DDL_F32, .gradient_type = 77}};
  const ddl_reducer_options options = {.gradients = DDL_GRADIENT_SUMS};
  ddl_reducer* reducer;
  one[0].gradient = values;
  expect_error(ddl_reducer_create(one, 1, &options, &reducer), DDL_INVALID_ARGUMENT,
               "parameters[0].gradient_type: found 77, expected DDL_F32 (3)");
  one[0].gradient_type = 0;
  expect(ddl_reducer_create(one, 1, &options, &reducer) == DDL_OK, "ddl_reducer_create");
  expect(ddl_reducer_ready(reducer, 0) == DDL_OK, "ddl_reducer_ready");
  expect_error(ddl_reducer_free(reducer), DDL_INVALID_ARGUMENT, "never waited for; call ddl_reducer_wait");
  expect_error(ddl_reducer_free(reducer), DDL_INVALID_ARGUMENT, "has been freed");
  expect(ddl_reducer_create(one, 1, &options, &reducer) == DDL_OK, "ddl_reducer_create");
  expect(ddl_reducer_begin(reducer, 1) == DDL_OK, "ddl_reducer_begin");
}

static void call_wrongly(void) {
  float values[4] = {1, 2, 3, 4};
  void* memory = values;
  expect_error(ddl_all_reduce(NULL, 4, DDL_F32, DDL_SUM), DDL_INVALID_ARGUMENT, "null");
  expect_error(ddl_all_reduce(values, -1, DDL_F32, DDL_SUM), DDL_INVALID_ARGUMENT, "count: found -1");
  expect_error(ddl_all_reduce(values, 4, 7, DDL_SUM), DDL_INVALID_ARGUMENT, "type: found 7");
  expect_error(ddl_all_reduce(values, 4, DDL_F32, -2), DDL_INVALID_ARGUMENT, "op: found -2");
  expect_error(ddl_broadcast(values, 4, DDL_F32, 1), DDL_INVALID_ARGUMENT, "root");
  expect_error(ddl_malloc(NULL, 64, 100), DDL_INVALID_ARGUMENT, "memory is null");
  expect_error(ddl_malloc(&memory, 48, 100), DDL_INVALID_ARGUMENT, "alignment: found 48");
  expect(memory == NULL, "memory is null after an error");
  expect_error(ddl_malloc(&memory, 64, (size_t)-1), DDL_INVALID_ARGUMENT, "bytes");
  expect_error(ddl_free(values), DDL_INVALID_ARGUMENT, "not from ddl_malloc");
  expect_error(ddl_init(NULL), DDL_INVALID_ARGUMENT, "second call");
  expect_error(ddl_reducer_ready(NULL, 0), DDL_INVALID_ARGUMENT, "reducer is null");
  leave_steps(values);
  if (ddl_device_wait(NULL) == DDL_INVALID_ARGUMENT) {
    expect_error(ddl_device_malloc(&memory, 100), DDL_INVALID_ARGUMENT, "call ddl_device_init");
  } else {
    expect_error(ddl_device_malloc(&memory, 100), DDL_UNSUPPORTED, "built without CUDA");
    expect_error(ddl_device_init(-1), DDL_UNSUPPORTED, "copy the data to the host");
  }
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
  expect(ddl_all_reduce(values, count, DDL_F32, DDL_SUM) == DDL_OK, "ddl_allreduce");
  for (i = 0; i < count; ++i) {
    if (values[i] == (float)(size * (i % 100)) + (float)(size * (size - 1) / 2)) continue;
    expect(0, "sums");
    break;
  }
  expect(ddl_broadcast(&number, 1, DDL_I64, size - 1) == DDL_OK && number == 42, "ddl_broadcast");
  expect(ddl_barrier() == DDL_OK, "ddl_barrier");
  expect(ddl_all_reduce(NULL, 0, DDL_F32, DDL_SUM) == DDL_OK, "nothing to reduce");
  expect(ddl_free(memory) == DDL_OK && ddl_free(NULL) == DDL_OK, "ddl_free");
  expect_error(ddl_free(memory), DDL_INVALID_ARGUMENT, "given back before");
}

static void move(void) {
  const int rank = ddl_rank(), size = ddl_size();
  int32_t own[2], all[2 * 64], sums[2 * 64], part[2];
  ddl_work *first, *second;
  int i, done;
  expect(size <= 64, "at most 64 ranks");
  own[0] = rank, own[1] = -rank;
  expect(ddl_all_gather_start(own, all, 2, DDL_I32, &first) == DDL_OK, "ddl_all_gather_start");
  for (i = 0; i < 2 * size; ++i) sums[i] = i;
  expect(ddl_reduce_scatter_start(sums, part, 2, DDL_I32, DDL_SUM, &second) == DDL_OK,
         "ddl_reduce_scatter_start");
  expect(ddl_wait(second) == DDL_OK && part[0] == 2 * rank * size && part[1] == (2 * rank + 1) * size,
         "ddl_reduce_scatter_start's sums");
  do expect(ddl_test(first, &done) == DDL_OK, "ddl_test");
  while (!done);
  expect(ddl_wait(first) == DDL_OK && ddl_wait(NULL) == DDL_OK, "ddl_wait");
  for (i = 0; i < size; ++i) expect(all[2 * i] == i && all[2 * i + 1] == -i, "ddl_all_gather");
  expect_error(ddl_wait(first), DDL_INVALID_ARGUMENT, "has been freed");
  expect(ddl_reduce(own, 1, DDL_I32, DDL_MAX, 0) == DDL_OK, "ddl_reduce");
  expect(own[0] == (rank == 0 ? size - 1 : rank), "ddl_reduce's result");
  expect(ddl_all_reduce_start(own, 1, DDL_I32, DDL_MIN, &first) == DDL_OK, "ddl_all_reduce_start");
  /* ddl_finalize frees the last one. */
}

/* Steps whose calls go wrong, by a program that looks at the results of ddl_reducer_wait alone. */
static void ignore_errors(void) {
  float first[3] = {0}, second[2] = {0}, moved[3] = {0};
  ddl_parameter parameters[3] = {
      {.count = 1, .type = DDL_F32}, {.count = 3, .type = DDL_F32}, {.count = 2, .type = DDL_F32}};
  const ddl_reducer_options options = {.gradients = DDL_GRADIENT_MEANS, .broadcast_values = 1};
  float root_value = (float)ddl_rank();
  int k;
  parameters[0].values = &root_value;
  parameters[1].values = first, parameters[1].gradient = first;
  parameters[2].values = second, parameters[2].gradient = second;
  expect(ddl_reducer_create(parameters, 3, &options, NULL) == DDL_OK, "ddl_reducer_create without a handle");
  expect(root_value == 0, "broadcast_values");
  for (k = 0; k < 2; ++k) { /* the first ddl_reducer_wait was forgotten */
    ddl_reducer_begin(NULL, 1);
    ddl_reducer_ready(NULL, 1);
    ddl_reducer_ready(NULL, 2);
  }
  expect_error(ddl_reducer_wait(NULL, DDL_GIVEN, NULL), DDL_INVALID_ARGUMENT,
               "ddl_reducer_begin: found a second call in a step, expected one; end the step between, with "
               "ddl_reducer_wait()");
  ddl_reducer_begin(NULL, 1);
  ddl_reducer_ready(NULL, 1);
  expect_error(
      ddl_reducer_wait(NULL, DDL_GIVEN, NULL), DDL_INVALID_ARGUMENT,
      "ddl_reducer_wait: gradient 2 ('2') was not made ready in this step; call ddl_reducer_ready(2), "
      "or ddl_reducer_absent(2)");
  ddl_reducer_begin(NULL, 1); /* one rank's error ends the step on all */
  ddl_reducer_ready(NULL, 1);
  ddl_reducer_ready(NULL, 2);
  if (ddl_rank() == ddl_size() - 1) ddl_reducer_ready(NULL, 1);
  expect_error(ddl_reducer_wait(NULL, DDL_GIVEN, NULL), DDL_INVALID_ARGUMENT,
               "ddl_reducer_ready: gradient 1 ('1') was reported before in this step, and so was every other "
               "one: the step has not been ended. Call ddl_reducer_wait()");
  expect_error(ddl_reducer_wait(NULL, DDL_GIVEN, NULL), DDL_INVALID_ARGUMENT,
               "ddl_reducer_wait(DDL_GIVEN) without ddl_reducer_begin(weight)");

  parameters[1].gradient = moved;
  expect(ddl_reducer_rebind(NULL, parameters, 3) == DDL_OK, "ddl_reducer_rebind");
  ddl_reducer_begin(NULL, 1);
  expect_error(ddl_reducer_rebind(NULL, parameters, 3), DDL_INVALID_ARGUMENT, "a step that has begun");
  for (k = 0; k < 3; ++k) moved[k] = (float)ddl_rank(), first[k] = -1;
  ddl_reducer_ready(NULL, 1);
  ddl_reducer_absent(NULL, 2);
  expect(ddl_reducer_wait(NULL, DDL_GIVEN, NULL) == DDL_OK, "a step after errors");
  expect(moved[2] == (float)(ddl_size() - 1) / 2 && first[2] == -1, "a gradient that has moved");
  parameters[2].count = 1;
  expect_error(ddl_reducer_rebind(NULL, parameters, 3), DDL_INVALID_ARGUMENT,
               "'2' of 1 f32, expected '2' of 2");
}

#ifndef WITH_MPI
/* The last rank forgets ddl_reducer_wait. Prints the error as programs do, and ends without ddl_finalize. */
static int forget_wait_on_one_rank(void) {
  double loss = 1;
  float gradient[3] = {1, 2, 3};
  const ddl_parameter parameters[1] = {{.count = 3, .type = DDL_F32, .gradient = gradient}};
  const ddl_reducer_options options = {.gradients = DDL_GRADIENT_SUMS};
  int failed = ddl_init(NULL) || ddl_reducer_create(parameters, 1, &options, NULL) ||
               ddl_reducer_begin(NULL, 1) || ddl_reducer_ready(NULL, 0);
  if (ddl_rank() != ddl_size() - 1) failed = failed || ddl_reducer_wait(NULL, DDL_GIVEN, NULL);
  failed = failed || ddl_all_reduce(&loss, 1, DDL_F64, DDL_SUM);
  if (failed) fprintf(stderr, "rank %d failed: %s\n", ddl_rank(), ddl_error_message());
  return failed;
}
#endif

/* Trains a model of two gradients, one of them an embedding's. */
static void train(const char* directory) {
  const int rank = ddl_rank(), size = ddl_size();
  float weights[5], rows[40];
  double moment[3] = {1, 2, 3};
  const int32_t touched[1] = {1};
  double wide[6] = {0}, *const summands[2] = {wide + 2, wide + 4};
  const ddl_parameter gradients[4] = {{.name = "weights", .count = 5, .type = DDL_F32, .gradient = weights},
                                      {.name = "rows",
                                       .count = 40,
                                       .type = DDL_BF16,
                                       .gradient = rows,
                                       .gradient_type = DDL_F32,
                                       .row_width = 4},
                                      {.name = "moment", .values = moment, .count = 3, .type = DDL_F64},
                                      {.count = 2,
                                       .type = DDL_F64,
                                       .gradient = wide,
                                       .summands = (void* const*)summands,
                                       .summand_count = 2}};
  const ddl_parameter tensors[2] = {{.name = "weights", .values = weights, .count = 5, .type = DDL_F32},
                                    {.name = "moment", .values = moment, .count = 3, .type = DDL_F64}};
  float sum_of[1] = {3};
  const ddl_parameter tensors_of_sums[1] = {{.name = "sum", .count = 1, .type = DDL_F32, .gradient = sum_of}};
  const ddl_reducer_options sums = {.gradients = DDL_GRADIENT_SUMS, .leave_sums = 1};
  ddl_reducer_options options = {0};
  ddl_reducer *reducer = NULL, *sum_reducer = NULL;
  ddl_sampler* sampler = NULL;
  ddl_checkpoint* checkpoint = NULL;
  const size_t* samples;
  size_t count, i, sum;
  ddl_step step;
  int64_t steps, at, all;
  double rate;
  int request, k;
  expect_error(ddl_reducer_create(gradients, 4, &options, &reducer), DDL_INVALID_ARGUMENT,
               "gradients: found 0");
  options.gradients = DDL_GRADIENT_SUMS;
  expect(ddl_reducer_create(gradients, 4, &options, &reducer) == DDL_OK && reducer != NULL,
         "ddl_reducer_create");
  for (k = 0; k < 3; ++k) {
    memset(rows, 0, sizeof rows);
    for (i = 0; i < 5; ++i) weights[i] = (float)(rank + 1);
    for (i = 4; i < 8; ++i) rows[i] = 2;
    expect(ddl_reducer_ready_rows(reducer, 1, touched, 1) == DDL_OK, "ddl_reducer_ready_rows");
    for (i = 0; i < 6; ++i) wide[i] = (double)i;
    expect(ddl_reducer_ready(reducer, 0) == DDL_OK, "ddl_reducer_ready");
    expect(ddl_reducer_ready(reducer, 3) == DDL_OK, "ddl_reducer_ready of f64");
    expect(ddl_reducer_wait(reducer, 2, &step) == DDL_OK, "ddl_reducer_wait");
    expect(step.weight == 2 * size && step.finite == 1, "what a step ends with");
    expect(weights[4] == (float)(size + 1) / 4 && rows[7] == 1 && rows[8] == 0, "means");
    expect(wide[0] == 3 && wide[1] == 4.5 && wide[2] == 0 && wide[5] == 0, "summands");
  }
  expect(ddl_reducer_create(tensors_of_sums, 1, &sums, &sum_reducer) == DDL_OK, "a reducer that leaves sums");
  expect(ddl_reducer_ready(sum_reducer, 0) == DDL_OK && ddl_reducer_wait(sum_reducer, 2, &step) == DDL_OK &&
             step.weight == 2 * size && sum_of[0] == 3 * (float)size,
         "sums");
  expect(ddl_reducer_free(sum_reducer) == DDL_OK, "the end of a reducer that leaves sums");
  expect_error(ddl_reducer_ready(reducer, 2), DDL_INVALID_ARGUMENT, "parameter 2 has no gradient");
  expect_error(ddl_reducer_ready(reducer, 4), DDL_INVALID_ARGUMENT, "found 4, expected 0 to 3");
  expect_error(ddl_reducer_wait(reducer, 1, NULL), DDL_INVALID_ARGUMENT,
               "ddl_reducer_wait: ddl_reducer_ready: index: parameter 2 has no gradient");
  expect(ddl_reducer_no_sync(reducer, 1) == DDL_OK, "ddl_reducer_no_sync");
  for (k = 0; k < 2; ++k) { /* a micro-batch, then the step; backward adds up */
    for (i = 0; i < 5; ++i) weights[i] = (float)(k + 1);
    memset(rows, 0, sizeof rows);
    expect(ddl_reducer_ready(reducer, 0) == DDL_OK && ddl_reducer_absent(reducer, 1) == DDL_OK &&
               ddl_reducer_absent(reducer, 3) == DDL_OK,
           "absent");
    expect(ddl_reducer_wait(reducer, 1, NULL) == DDL_OK, "a micro-batch");
    expect(ddl_reducer_no_sync(reducer, 0) == DDL_OK, "the end of ddl_reducer_no_sync");
  }
  expect(weights[0] == 1, "the mean of micro-batches");
  expect(ddl_reducer_has_gradient(reducer, 0, &request) == DDL_OK && request == 1, "a gradient with a value");
  expect(ddl_reducer_has_gradient(reducer, 1, &request) == DDL_OK && request == 0, "absent on all ranks");

  expect(ddl_sampler_create(100, 3, 7, 1, &sampler) == DDL_OK, "ddl_sampler_create");
  expect(ddl_sampler_steps_per_epoch(sampler, &steps) == DDL_OK && steps == (100 + 3 * size - 1) / (3 * size),
         "ddl_sampler_steps_per_epoch");
  for (at = 0, sum = 0; at < steps; ++at) {
    expect(ddl_sampler_next(sampler, &samples, &count) == DDL_OK && count <= 3, "ddl_sampler_next");
    for (i = 0; i < count; ++i) sum += samples[i];
  }
  all = (int64_t)sum;
  expect(ddl_all_reduce(&all, 1, DDL_I64, DDL_SUM) == DDL_OK && all == 99 * 100 / 2, "each sample once");
  expect(ddl_learning_rate(0.5, DDL_SCALE_LINEAR, 5, 10, &rate) == DDL_OK &&
             rate == 0.5 * (1 + (size - 1) * 0.5),
         "ddl_learning_rate");
  expect_error(ddl_learning_rate(0.5, 3, 0, 0, &rate), DDL_INVALID_ARGUMENT, "rule: found 3");

  moment[1] = rank;
  expect(ddl_broadcast_parameters(tensors, 2, size - 1) == DDL_OK && moment[1] == size - 1,
         "ddl_broadcast_parameters");
  expect(ddl_check_same(tensors, 2) == DDL_OK, "ddl_check_same");
  expect(ddl_checkpoint_create(directory, 0, 0, reducer, sampler, &checkpoint) == DDL_OK,
         "ddl_checkpoint_create");
  expect(ddl_checkpoint_restore(checkpoint, tensors, 2, &at) == DDL_OK && at == -1, "no checkpoint yet");
  expect(ddl_checkpoint_save(checkpoint, 12, tensors, 2) == DDL_OK, "ddl_checkpoint_save");
  weights[0] = 0, moment[2] = 0;
  expect(ddl_checkpoint_restore(checkpoint, tensors, 2, &at) == DDL_OK && at == 12 && weights[0] == 1 &&
             moment[2] == 3,
         "ddl_checkpoint_restore");
  expect(ddl_checkpoint_poll(checkpoint, &request) == DDL_OK && request == DDL_GO_ON, "ddl_checkpoint_poll");
  expect(ddl_checkpoint_free(checkpoint) == DDL_OK && ddl_sampler_free(sampler) == DDL_OK &&
             ddl_reducer_free(reducer) == DDL_OK,
         "free");

  expect(ddl_scope_begin("evaluation") == DDL_OK && ddl_scope_end() == DDL_OK, "scopes");
  expect_error(ddl_scope_end(), DDL_INVALID_ARGUMENT, "ddl_scope_begin");
  expect(ddl_root_begin("log") == (rank == 0), "ddl_root_begin");
  expect(ddl_root_end(NULL) == DDL_OK, "ddl_root_end");
  ddl_root_begin("log");
  expect_error(ddl_root_end(rank == 0 ? "the log is full" : NULL), DDL_IO, "log: the log is full");
}

#ifdef WITH_MPI
/* Each half of MPI_COMM_WORLD, in reverse order, is a job of its own. */
static int run_on_half(void) {
  int rank, half_rank, half_size;
  double value;
  MPI_Comm half, pair, both, none = MPI_COMM_NULL;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
  MPI_Comm_rank(half, &half_rank);
  MPI_Comm_size(half, &half_size);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 2 * half_size - 1 - rank % 2, 0, &both);
  expect_error(ddl_init_mpi(NULL, NULL), DDL_INVALID_ARGUMENT, "communicator is null");
  expect_error(ddl_init_mpi(NULL, &none), DDL_INVALID_ARGUMENT, "MPI_COMM_NULL");
  expect_error(ddl_init_mpi(NULL, &both), DDL_INVALID_ARGUMENT, "MPI_Intercomm_merge");
  expect(ddl_init_mpi("-mode p", &half) == DDL_OK, "ddl_init_mpi");
  expect(ddl_rank() == half_rank && ddl_size() == half_size, "the communicator's ranks");
  value = rank;
  expect(ddl_broadcast(&value, 1, DDL_F64, half_size - 1) == DDL_OK && value == rank % 2,
         "the last is MPI's first");
  MPI_Comm_split(half, 0, rank, &pair);
  value = 1;
  expect(ddl_allreduce_mpi(NULL, &value, 1, MPI_DOUBLE, MPI_SUM, pair) == DDL_OK && value == half_size,
         "a communicator of the job's ranks");
  expect_error(ddl_allreduce_mpi(NULL, &value, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD), DDL_INVALID_ARGUMENT,
               "not of this job");
  MPI_Comm_free(&pair), MPI_Comm_free(&half), MPI_Comm_free(&both);
  expect(ddl_barrier() == DDL_OK, "the communicator may go");
  expect(ddl_finalize() == DDL_OK, "ddl_finalize");
  expect(MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS, "MPI goes on");
  MPI_Finalize();
  return failures == 0 ? 0 : 1;
}

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
  expect(DDL_VERSION_MINOR == 1 && strcmp(ddl_version(), "0.1.0") == 0, "ddl_version");
  expect(ddl_rank() == -1 && ddl_size() == -1 && ddl_local_rank() == -1, "no rank before ddl_init");
  expect_error(ddl_barrier(), DDL_NOT_INITIALIZED, "ddl_barrier: there is no job");
  expect_error(ddl_all_reduce(&value, 1, DDL_F32, DDL_SUM), DDL_NOT_INITIALIZED,
               "between ddl_init and ddl_finalize");
  expect_error(ddl_finalize(), DDL_NOT_INITIALIZED, "ddl_finalize");
  expect_error(ddl_init("-mod p"), DDL_INVALID_ARGUMENT, "the nearest is -mode");
#ifdef WITH_MPI
  MPI_Init(&count, &arguments);
  if (count > 1 && strcmp(arguments[1], "half") == 0) return run_on_half();
  reduce_by_mpi("-mode p"); /* begins the job */
#else
  if (count > 1 && strcmp(arguments[1], "nowait") == 0) return forget_wait_on_one_rank();
  if (count > 1 && strcmp(arguments[1], "abort") == 0) {
    ddl_init("-mode p -errors abort");
    expect(ddl_barrier() == DDL_OK, "ddl_barrier");
    ddl_all_reduce(NULL, 3, DDL_F32, DDL_SUM);
    printf("the program goes on\n");
    return 0;
  }
  expect_error(ddl_init("-errors ignore"), DDL_INVALID_ARGUMENT, "found 'ignore', expected abort or return");
  expect(ddl_init("-mode p") == DDL_OK, "ddl_init");
#endif
  if (ddl_size() < 1) return 1;
  if (is_wrong) {
    call_wrongly();
  } else {
    reduce();
    move();
    ignore_errors();
    if (count > 1) train(arguments[1]);
  }
  if (ddl_rank() == 0) printf("%d ranks, %d failures\n", ddl_size(), failures);
  if (is_wrong) {
    expect_error(ddl_finalize(), DDL_INVALID_ARGUMENT, "never waited for");
  } else {
    expect(ddl_finalize() == DDL_OK, "ddl_finalize");
  }
  expect_error(ddl_barrier(), DDL_NOT_INITIALIZED, "there is no job");
  expect_error(ddl_init(NULL), DDL_INVALID_ARGUMENT, "has ended");
#ifdef WITH_MPI
  MPI_Finalize();
#endif
  return failures == 0 ? 0 : 1;
}
