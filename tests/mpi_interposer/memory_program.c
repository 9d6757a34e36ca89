/* An MPI program that uses malloc's memory in collectives, in every way that could go wrong if libddl_mpi moves it to memory
 * that the ranks share.
 *   memory_program shared|private|locked: what is expected to become of buffers that are used often. `locked`: a locked page
 *   of the program keeps all memory private. */
#define _GNU_SOURCE
#include <malloc.h>
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static int rank, size, expects_shared;
static const int count = 300001; /* floats: 1.2 MB, and its last page is not full */
enum { often = 21, page = 4096 };

static void fail(const char* what, const char* part) {
  fprintf(stderr, "rank %d: %s: %s\n", rank, part, what);
  MPI_Abort(MPI_COMM_WORLD, 3);
}

static int is_shared(const void* data) {
  FILE* const maps = fopen("/proc/self/maps", "r");
  char line[512];
  int found = 0;
  if (maps == NULL) fail("cannot read /proc/self/maps", "start");
  while (!found && fgets(line, sizeof line, maps) != NULL) {
    unsigned long begin, end;
    found = sscanf(line, "%lx-%lx", &begin, &end) == 2 && (uintptr_t)data >= begin && (uintptr_t)data < end;
  }
  fclose(maps);
  return found && strstr(line, "memfd:ddl-memory") != NULL;
}

static void expect_shared(const void* data, const char* part) {
  if (is_shared(data) != expects_shared) fail(expects_shared ? "is not shared" : "is shared", part);
}

/* Reduces n floats, and checks the first, the middle and the last result. */
static void reduce(float* in, float* out, int n, const char* part) {
  static int turn = 0;
  const int at[] = {0, n / 2, n - 1};
  ++turn;
  for (int i = 0; i < n; ++i) in[i] = (float)(rank + turn % 100 + i % 7);
  MPI_Allreduce(in == out ? MPI_IN_PLACE : in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  for (int k = 0; k < 3; ++k) {
    const int expected = size * (size - 1) / 2 + size * (turn % 100 + at[k] % 7);
    if (out[at[k]] != (float)expected) fail("a wrong sum", part);
  }
}

static void reduce_often(float* in, float* out, int n, const char* part) {
  for (int i = 0; i < often; ++i) reduce(in, out, n, part);
}

static float* allocate(const char* by, int n) {
  const size_t bytes = (size_t)n * sizeof(float);
  void* data = NULL;
  if (strcmp(by, "malloc") == 0) data = malloc(bytes);
  if (strcmp(by, "calloc") == 0) data = calloc((size_t)n, sizeof(float));
  if (strcmp(by, "posix_memalign") == 0 && posix_memalign(&data, 64, bytes) != 0) data = NULL;
  if (strcmp(by, "aligned_alloc") == 0) data = aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (strcmp(by, "memalign") == 0) data = memalign(2 * page, bytes);
  if (data == NULL) fail("no memory", by);
  return data;
}

/* Blocks of every kind, used, freed, and used again. */
static void blocks(void) {
  const char* const ways[] = {"malloc", "calloc", "posix_memalign", "memalign"};
  for (int turn = 0; turn < 2; ++turn) {
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; ++i) {
      float* const in = allocate(ways[i], count);
      float* const out = allocate(ways[i], count);
      reduce_often(in, out, count, ways[i]);
      expect_shared(in, ways[i]);
      expect_shared(out + count - 1, ways[i]);
      reduce_often(out, out, count, ways[i]);
      free(in);
      free(out);
      float* const zeros = calloc((size_t)count, sizeof(float));
      for (int k = 0; k < count; ++k) if (zeros[k] != 0) fail("calloc's memory is not zero", ways[i]);
      if (is_shared(zeros)) fail("new memory is shared", ways[i]);
      free(zeros);
    }
  }
  /* Its size is a multiple of 64, so that a call on fewer bytes leaves some of the last page to the program. */
  float* const partly = allocate("aligned_alloc", count);
  reduce_often(partly, partly, count, "aligned_alloc");
  if (is_shared(partly)) fail("a page is shared that a call does not cover", "aligned_alloc");
  free(partly);
}

static void reallocation(void) {
  float* data = allocate("malloc", count);
  reduce_often(data, data, count, "realloc");
  expect_shared(data, "realloc");
  for (int i = 0; i < count; ++i) data[i] = (float)i;
  data = realloc(data, 3 * (size_t)count * sizeof(float));
  for (int i = 0; i < count; ++i) if (data[i] != (float)i) fail("lost contents when it grew", "realloc");
  if (is_shared(data)) fail("is still shared", "realloc");
  reduce_often(data, data, 3 * count, "realloc");
  for (int i = 0; i < 3 * count; ++i) data[i] = (float)i;
  data = realloc(data, (size_t)count * sizeof(float));
  for (int i = 0; i < count; ++i) if (data[i] != (float)i) fail("lost contents when it shrank", "realloc");
  reduce_often(data, data, count, "realloc");
  free(data);
}

/* Calls on parts of a block. Pages that a call does not cover stay private: another thread may be writing to them. */
static void slices(void) {
  const int slice = 256 * page / (int)sizeof(float), n = 4 * slice;
  float* const data = allocate("malloc", n);
  reduce_often(data + slice + 1, data + slice + 1, slice, "an unaligned slice");
  if (is_shared(data + slice)) fail("is shared", "an unaligned slice");
  for (int i = 0; i < n; ++i) data[i] = (float)-i;
  reduce_often(data + slice, data + slice, slice, "a slice");
  expect_shared(data + slice, "a slice");
  if (is_shared(data + slice - 1) || is_shared(data + 2 * slice)) fail("its neighbour is shared", "a slice");
  reduce_often(data + slice, data + slice, 2 * slice, "a longer slice");
  expect_shared(data + 2 * slice, "a longer slice");
  reduce_often(data + slice / 2, data + slice / 2, slice, "an overlapping slice");
  if (is_shared(data + slice - 1)) fail("is shared", "an overlapping slice");
  for (int i = 0; i < slice / 2; ++i) if (data[i] != (float)-i) fail("lost contents", "a slice");
  for (int i = 3 * slice; i < n; ++i) if (data[i] != (float)-i) fail("lost contents", "a slice");
  reduce_often(data, data, n, "all slices");
  expect_shared(data, "all slices");
  expect_shared(data + n - 1, "all slices");
  free(data);
}

/* The other collectives, in place and not, on memory that is shared and not. */
static void collectives(void) {
  const int piece = 100 * page / (int)sizeof(float), n = piece * size;
  float* const in = allocate("malloc", n);
  float* const out = allocate("malloc", n);
  for (int turn = 0; turn < 2 * often; ++turn) {
    for (int i = 0; i < n; ++i) in[i] = (float)(rank + turn);
    MPI_Allgather(in, piece, MPI_FLOAT, out, piece, MPI_FLOAT, MPI_COMM_WORLD);
    for (int r = 0; r < size; ++r) if (out[(r + 1) * piece - 1] != (float)(r + turn)) fail("wrong", "MPI_Allgather");
    for (int i = 0; i < piece; ++i) in[rank * piece + i] = (float)(rank - turn);
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in, piece, MPI_FLOAT, MPI_COMM_WORLD);
    for (int r = 0; r < size; ++r) if (in[r * piece] != (float)(r - turn)) fail("wrong", "MPI_Allgather in place");
    MPI_Reduce_scatter_block(in, out, piece, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (out[piece - 1] != (float)(size * (rank - turn))) fail("wrong", "MPI_Reduce_scatter_block");
    const int root = turn % size;
    if (rank == root) for (int i = 0; i < n; ++i) in[i] = (float)(i % 1000 + turn);
    MPI_Bcast(in, n, MPI_FLOAT, root, MPI_COMM_WORLD);
    if (in[n - 1] != (float)((n - 1) % 1000 + turn)) fail("wrong", "MPI_Bcast");
    MPI_Reduce(in, rank == root ? out : NULL, n, MPI_FLOAT, MPI_SUM, root, MPI_COMM_WORLD);
    if (rank == root && out[n - 1] != (float)(size * ((n - 1) % 1000 + turn))) fail("wrong", "MPI_Reduce");
  }
  free(out);
  free(in);
}

/* A forked child has its own copy. */
static void children(void) {
  float* const data = allocate("malloc", count);
  reduce_often(data, data, count, "fork");
  expect_shared(data, "fork");
  for (int i = 0; i < count; ++i) data[i] = (float)i;
  const pid_t child = fork();
  if (child == 0) {
    int wrong = is_shared(data);
    for (int i = 0; i < count; ++i) wrong += data[i] != (float)i;
    memset(data, 0, (size_t)count * sizeof(float));
    free(data);
    free(malloc((size_t)count * sizeof(float)));
    _exit(wrong != 0);
  }
  int status = 1;
  if (child == -1 || waitpid(child, &status, 0) != child) fail("no child", "fork");
  if (status != 0) fail("the child has something else", "fork");
  for (int i = 0; i < count; ++i) if (data[i] != (float)i) fail("the child has written to it", "fork");
  expect_shared(data, "fork");
  reduce(data, data, count, "fork");
  free(data);
}

static volatile int is_over;

static void* allocate_much(void* seed) {
  unsigned state = *(unsigned*)seed;
  unsigned char* kept[16] = {0};
  size_t bytes[16] = {0};
  while (!is_over) {
    const int i = rand_r(&state) % 16;
    if (kept[i] != NULL && (kept[i][0] != i || kept[i][bytes[i] - 1] != i)) fail("another thread's memory", "threads");
    bytes[i] = 1 + (size_t)rand_r(&state) % 400000;
    if (rand_r(&state) % 2 == 0) {
      free(kept[i]);
      kept[i] = rand_r(&state) % 2 == 0 ? malloc(bytes[i]) : calloc(1, bytes[i]);
    } else {
      kept[i] = realloc(kept[i], bytes[i]);
    }
    kept[i][0] = kept[i][bytes[i] - 1] = (unsigned char)i;
  }
  for (int i = 0; i < 16; ++i) free(kept[i]);
  return NULL;
}

static void threads(void) {
  pthread_t ids[2];
  unsigned seeds[2] = {1, 2};
  for (int i = 0; i < 2; ++i) pthread_create(&ids[i], NULL, allocate_much, &seeds[i]);
  for (int turn = 0; turn < 10; ++turn) {
    float* const in = allocate("malloc", count);
    float* const out = allocate("malloc", count);
    reduce_often(in, out, count, "threads");
    expect_shared(out, "threads");
    free(in);
    free(out);
  }
  is_over = 1;
  for (int i = 0; i < 2; ++i) pthread_join(ids[i], NULL);
}

int main(int argc, char** argv) {
  static _Alignas(page) char locked[page];
  float* const early = malloc((size_t)count * sizeof(float));
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc != 2) fail("expected shared, private or locked", "arguments");
  expects_shared = strcmp(argv[1], "shared") == 0;
  if (strcmp(argv[1], "locked") == 0 && mlock(locked, page) != 0) fail("mlock failed", "locked");
  reduce_often(early, early, count, "before MPI_Init");
  expect_shared(early, "before MPI_Init");
  blocks();
  reallocation();
  slices();
  collectives();
  children();
  threads();
  for (int i = 0; i < count; ++i) early[i] = (float)i;
  MPI_Finalize();
  for (int i = 0; i < count; ++i) if (early[i] != (float)i) return 1;
  free(early);
  if (rank == 0) printf("memory: all as expected, %s\n", argv[1]);
  return 0;
}
