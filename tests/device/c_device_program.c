/* A C program on a device: collectives, parameters, and steps of a reducer. See c_device_test.sh. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#include "ddl/ddl.h"

enum { COUNT = 30000, ROWS = 1000, WIDTH = 4, ELEMENTS = ROWS * WIDTH };

static int failures = 0;
static cudaStream_t stream;

static void expect(int holds, const char* what) {
  if (holds) return;
  ++failures;
  fprintf(stderr, "FAILED: %s (last message: %s)\n", what, ddl_error_message());
}

static void expect_error(int result, int error, const char* words) {
  if (result == error && strstr(ddl_error_message(), words) != NULL) return;
  ++failures;
  fprintf(stderr, "FAILED: found %s: %s; expected %s and '%s'\n", ddl_error_name(result), ddl_error_message(),
          ddl_error_name(error), words);
}

static void fill(float* on_device, int count, float value) {
  static float values[COUNT * 8];
  int i;
  for (i = 0; i < count; ++i) values[i] = value;
  expect(cudaMemcpy(on_device, values, (size_t)count * sizeof(float), cudaMemcpyHostToDevice) == cudaSuccess,
         "cudaMemcpy to the device");
  /* Other streams do not wait for the copy. */
  expect(cudaStreamSynchronize(NULL) == cudaSuccess, "cudaStreamSynchronize");
}

/* Whether the stream leaves `value` in all elements. */
static int holds(const float* on_device, int count, float value) {
  static float values[COUNT * 8];
  int i;
  if (ddl_device_wait(stream) != DDL_OK) return 0;
  if (cudaMemcpy(values, on_device, (size_t)count * sizeof(float), cudaMemcpyDeviceToHost) != cudaSuccess)
    return 0;
  for (i = 0; i < count && values[i] == value; ++i) continue;
  return i == count;
}

static float* plain(int count) {
  void* memory = NULL;
  expect(cudaMalloc(&memory, (size_t)count * sizeof(float)) == cudaSuccess, "cudaMalloc");
  return memory;
}

static void call_wrongly(void) {
  float* const data = plain(4);
  ddl_reducer* reducer = NULL;
  ddl_reducer_options options = {.gradients = DDL_GRADIENT_SUMS, .on_device = 1};
  double wide = 0;
  const ddl_parameter f64 = {.name = "wide", .count = 1, .type = DDL_F64, .gradient = &wide};
  expect_error(ddl_device_init(-1), DDL_INVALID_ARGUMENT, "second call");
  expect_error(ddl_device_malloc(NULL, 100), DDL_INVALID_ARGUMENT, "memory is null");
  expect_error(ddl_device_all_reduce(data, 4, 7, DDL_SUM, stream), DDL_INVALID_ARGUMENT, "type: found 7");
  expect_error(ddl_device_all_reduce(NULL, 4, DDL_F32, DDL_SUM, stream), DDL_INVALID_ARGUMENT, "null");
  expect_error(ddl_reducer_create(&f64, 1, &options, &reducer), DDL_INVALID_ARGUMENT, "wide");
  expect(reducer == NULL, "no reducer after an error");
  expect_error(ddl_reducer_finish(NULL, 1, stream), DDL_INVALID_ARGUMENT, "null");
  options.on_device = 0;
  expect(ddl_reducer_create(&f64, 1, &options, &reducer) == DDL_OK, "ddl_reducer_create on the host");
  expect_error(ddl_reducer_finish(reducer, 1, stream), DDL_INVALID_ARGUMENT, "call ddl_reducer_wait()");
  cudaFree(data);
}

static void move(void) {
  const int rank = ddl_rank(), size = ddl_size();
  void* mapped = NULL;
  float *all, *part;
  expect(ddl_device_malloc(&mapped, COUNT * sizeof(float)) == DDL_OK && mapped != NULL, "ddl_device_malloc");
  fill(mapped, COUNT, (float)(rank + 1));
  expect(ddl_device_all_reduce(mapped, COUNT, DDL_F32, DDL_SUM, stream) == DDL_OK, "ddl_device_all_reduce");
  expect(holds(mapped, COUNT, (float)(size * (size + 1)) / 2), "sums");
  fill(mapped, COUNT, (float)rank);
  expect(ddl_device_broadcast(mapped, COUNT, DDL_F32, size - 1, stream) == DDL_OK, "ddl_device_broadcast");
  expect(holds(mapped, COUNT, (float)(size - 1)), "the root's values");
  all = plain(100 * size), part = plain(100);
  fill(all, 100 * size, 1);
  expect(ddl_device_reduce_scatter(all, part, 100, DDL_F32, DDL_SUM, stream) == DDL_OK,
         "ddl_device_reduce_scatter");
  expect(holds(part, 100, (float)size), "this rank's sums");
  fill(part, 100, (float)rank);
  expect(ddl_device_all_gather(part, all, 100, DDL_F32, stream) == DDL_OK, "ddl_device_all_gather");
  expect(holds(all, 100, 0) && holds(all + 100 * (size - 1), 100, (float)(size - 1)), "all ranks' values");
}

static void broadcast_model(void) {
  float* const values = plain(100);
  ddl_parameter model[2] = {{.name = "w", .values = values, .count = 60, .type = DDL_F32},
                            {.name = "b", .values = values + 60, .count = 40, .type = DDL_F32}};
  fill(values, 100, (float)ddl_rank());
  expect(ddl_device_broadcast_parameters(model, 2, ddl_size() - 1, stream) == DDL_OK,
         "ddl_device_broadcast_parameters");
  expect(holds(values, 100, (float)(ddl_size() - 1)), "the root's model");
}

static void train(void) {
  const int rank = ddl_rank(), size = ddl_size();
  const int32_t touched[2] = {1, 1};
  void* weights = NULL;
  float* const rows = plain(ELEMENTS);
  ddl_parameter model[3] = {{.name = "weights"}, {.name = "no gradient"}, {.name = "rows"}};
  ddl_reducer_options options = {.gradients = DDL_GRADIENT_SUMS, .on_device = 1};
  ddl_reducer* reducer = NULL;
  ddl_step step;
  int k, has_value;
  expect(ddl_device_malloc(&weights, COUNT * sizeof(float)) == DDL_OK, "memory of gradients");
  model[0].gradient = weights, model[0].count = COUNT, model[0].type = DDL_F32;
  model[2].gradient = rows, model[2].count = ELEMENTS, model[2].type = DDL_F32, model[2].row_width = WIDTH;
  expect(ddl_reducer_create(model, 3, &options, &reducer) == DDL_OK, "ddl_reducer_create");
  for (k = 0; k < 3; ++k) {
    fill(weights, COUNT, (float)(rank + 1));
    fill(rows, ELEMENTS, 0);
    fill(rows + WIDTH, WIDTH, 2);
    expect(ddl_reducer_ready_rows_on(reducer, 2, touched, 2, stream) == DDL_OK, "ddl_reducer_ready_rows_on");
    expect(ddl_reducer_ready_on(reducer, 0, stream) == DDL_OK, "ddl_reducer_ready_on");
    expect(ddl_reducer_finish(reducer, 2, stream) == DDL_OK, "ddl_reducer_finish");
    expect(holds(weights, COUNT, (float)(size + 1) / 4), "means");
    expect(holds(rows, WIDTH, 0) && holds(rows + WIDTH, WIDTH, 1) && holds(rows + 2 * WIDTH, WIDTH, 0),
           "means of rows");
    expect(ddl_reducer_result(reducer, &step) == DDL_OK && step.weight == 2 * size && step.finite == 1,
           "ddl_reducer_result");
  }
  expect_error(ddl_reducer_result(reducer, &step), DDL_INVALID_ARGUMENT, "before ddl_reducer_finish()");
  expect_error(ddl_reducer_ready_on(reducer, 1, stream), DDL_INVALID_ARGUMENT, "has no gradient");
  expect_error(ddl_reducer_wait(reducer, 1, NULL), DDL_INVALID_ARGUMENT,
               "ddl_reducer_ready_on: index: parameter 1 has no gradient");

  /* On the default stream, with a gradient that is absent. */
  fill(weights, COUNT, (float)rank);
  expect(ddl_reducer_begin(reducer, 1) == DDL_OK && ddl_reducer_ready(reducer, 0) == DDL_OK &&
             ddl_reducer_absent(reducer, 2) == DDL_OK,
         "a step as on hosts");
  expect(ddl_reducer_wait(reducer, DDL_GIVEN, &step) == DDL_OK && step.weight == size, "ddl_reducer_wait");
  expect(holds(weights, COUNT, (float)(size - 1) / 2), "means on the default stream");
  expect(ddl_reducer_has_gradient(reducer, 2, &has_value) == DDL_OK && has_value == 0, "absent everywhere");
  expect(ddl_reducer_free(reducer) == DDL_OK, "ddl_reducer_free");

  /* Micro-batches of means. This reducer is left to ddl_finalize. */
  options.gradients = DDL_GRADIENT_MEANS, options.micro_batches = 1;
  expect(ddl_reducer_create(model, 1, &options, &reducer) == DDL_OK, "a reducer of means");
  for (k = 0; k < 2; ++k) {
    expect(ddl_reducer_no_sync(reducer, 1 - k) == DDL_OK && ddl_reducer_begin(reducer, 1) == DDL_OK,
           "ddl_reducer_no_sync");
    fill(weights, COUNT, (float)(2 * k));
    expect(ddl_reducer_ready_on(reducer, 0, stream) == DDL_OK, "a micro-batch");
    expect(ddl_reducer_finish(reducer, DDL_GIVEN, stream) == DDL_OK, "its end");
    expect(ddl_device_wait(stream) == DDL_OK, "ddl_device_wait");
  }
  expect(holds(weights, COUNT, 1), "the mean of micro-batches");
}

int main(void) {
  expect_error(ddl_device_init(-1), DDL_NOT_INITIALIZED, "there is no job");
  if (ddl_init("-dbg_level 0") != DDL_OK) {
    fprintf(stderr, "%s\n", ddl_error_message());
    return 1;
  }
  expect(ddl_device() == -1, "no device before ddl_device_init");
  expect_error(ddl_device_wait(NULL), DDL_INVALID_ARGUMENT, "call ddl_device_init");
  if (ddl_device_init(-1) != DDL_OK) {
    fprintf(stderr, "%s\n", ddl_error_message());
    return 1;
  }
  expect(ddl_device() >= 0, "ddl_device");
  expect(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess, "cudaStreamCreate");
  call_wrongly();
  move();
  broadcast_model();
  train();
  if (failures == 0) printf("rank %d of %d passed\n", ddl_rank(), ddl_size());
  expect(ddl_finalize() == DDL_OK, "ddl_finalize");
  expect_error(ddl_device_wait(stream), DDL_NOT_INITIALIZED, "there is no job");
  return failures == 0 ? 0 : 1;
}
