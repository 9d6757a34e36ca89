/* Times MPI's collectives. A plain MPI program, to be run with and without libddl_mpi (mpi_program.py).
 *   mpi_collectives [--allocated] [--barriers] [--iterations N] BYTES...
 * A line for each collective and size: its name, the bytes of the largest buffer of a rank, and the median over
 * iterations of the slowest rank's time in us. All ranks start an iteration after a barrier, which is not part of
 * its time; in an iteration there are 20 calls back to back, 5 from 64 KiB on; with --barriers, each after a barrier.
 * Memory is malloc's; with --allocated, MPI_Alloc_mem's. The first result of each is checked. The first line and the last
 * one say how far apart two cores are: a virtual machine's may move. */
#define _GNU_SOURCE
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size, barriers;

/* A barrier of one host's ranks that is the same for all MPIs: how far apart ranks leave MPI_Barrier is a good part of
 * a small call's time, and differs from MPI to MPI. */
struct meeting {
  _Alignas(64) atomic_int arrived;
  _Alignas(64) atomic_int round;
};
static struct meeting* meeting; /* null: the ranks do not share memory, and MPI_Barrier is used */
static MPI_Win window;
static int takes_turns; /* more ranks than processors */

static void open_meeting(void) {
  MPI_Comm host;
  MPI_Aint bytes;
  int ranks, unit;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  MPI_Comm_size(host, &ranks);
  if (ranks == size) {
    MPI_Win_allocate_shared(rank == 0 ? 4096 : 0, 1, MPI_INFO_NULL, host, &meeting, &window);
    MPI_Win_shared_query(window, 0, &bytes, &unit, &meeting);
    takes_turns = size > sysconf(_SC_NPROCESSORS_ONLN);
    if (rank == 0) memset(meeting, 0, sizeof *meeting);
  }
  MPI_Comm_free(&host);
  PMPI_Barrier(MPI_COMM_WORLD);
}

static void meet(void) {
  if (meeting == NULL) {
    PMPI_Barrier(MPI_COMM_WORLD);
    return;
  }
  const int round = atomic_load(&meeting->round);
  if (atomic_fetch_add(&meeting->arrived, 1) == size - 1) {
    atomic_store(&meeting->arrived, 0);
    atomic_store(&meeting->round, round + 1);
    return;
  }
  for (int polls = 1; atomic_load(&meeting->round) == round; ++polls) {
    int found;
    if (takes_turns || polls % 1024 == 0) sched_yield();
    /* Others may still need this rank's MPI to finish a call. */
    if (polls % 1024 == 0) PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
  }
}

enum kind { allreduce, bcast, reduce_scatter, allgather, reduce, kinds };
static const char* const names[kinds] = {"MPI_Allreduce", "MPI_Bcast", "MPI_Reduce_scatter_block",
                                         "MPI_Allgather", "MPI_Reduce"};

static void call(enum kind kind, float* in, float* out, int count) {
  const MPI_Comm all = MPI_COMM_WORLD;
  const int each = count / size;
  switch (kind) {
    case allreduce: MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, all); break;
    case bcast: MPI_Bcast(in, count, MPI_FLOAT, 0, all); break;
    case reduce_scatter: MPI_Reduce_scatter_block(in, out, each, MPI_FLOAT, MPI_SUM, all); break;
    case allgather: MPI_Allgather(in, each, MPI_FLOAT, out, each, MPI_FLOAT, all); break;
    default: MPI_Reduce(in, out, count, MPI_FLOAT, MPI_SUM, 0, all); break;
  }
}

static int is_right(enum kind kind, const float* in, const float* out, int count) {
  const int each = count / size;
  switch (kind) {
    case bcast: return in[count - 1] == 1;
    case allgather: return each == 0 || (out[each - 1] == 1 && out[each * size - 1] == (float)size);
    case reduce_scatter: return each == 0 || out[each - 1] == (float)(size * (size + 1) / 2);
    default: return (kind == reduce && rank != 0) || out[count - 1] == (float)(size * (size + 1) / 2);
  }
}

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

enum { batches = 200, round_trips = 50 };
static _Alignas(64) atomic_int ball;

/* Moves the thread to the first processor from `first` on that it may use, and returns that. */
static int move_to(int first) {
  for (int i = first; i < CPU_SETSIZE; ++i) {
    cpu_set_t processor;
    CPU_ZERO(&processor);
    CPU_SET(i, &processor);
    if (pthread_setaffinity_np(pthread_self(), sizeof processor, &processor) == 0) return i;
  }
  return -1;
}

/* Answers each odd number with the next even one. */
static void* answer(void* processor) {
  move_to(*(const int*)processor);
  for (int i = 1; i < 2 * batches * round_trips; i += 2) {
    while (atomic_load(&ball) != i) continue;
    atomic_store(&ball, i + 1);
  }
  return NULL;
}

/* Times a cache line's way from the first processor to the second and back, in us; 0 without a second one. The best of
 * many batches, because other ranks may be on these processors. */
static void* serve(void* result) {
  pthread_t other;
  double* const best = result;
  int second = move_to(move_to(0) + 1);
  *best = 0;
  if (second == -1) return NULL;
  *best = 1e9;
  move_to(0);
  pthread_create(&other, NULL, answer, &second);
  for (int i = 0; i < batches; ++i) {
    const double start = MPI_Wtime();
    for (int k = 0; k < round_trips; ++k) {
      const int sent = 2 * (i * round_trips + k) + 1;
      atomic_store(&ball, sent);
      while (atomic_load(&ball) != sent + 1) continue;
    }
    const double us = (MPI_Wtime() - start) / round_trips * 1e6;
    if (us < *best) *best = us;
  }
  pthread_join(other, NULL);
  return NULL;
}

static void print_cores(void) {
  if (rank == 0) {
    pthread_t thread;
    double us;
    atomic_store(&ball, 0);
    pthread_create(&thread, NULL, serve, &us);
    pthread_join(thread, NULL);
    printf("cores %.3f\n", us);
  }
  PMPI_Barrier(MPI_COMM_WORLD);
}

/* The slowest rank's time of a call, in us. */
static double time_of(enum kind kind, float* in, float* out, int count) {
  const int calls = count * sizeof(float) < 64 * 1024 ? 20 : 5;
  double time = 0;
  for (int k = 0; k < calls;) {
    meet();
    const double start = MPI_Wtime();
    do call(kind, in, out, count);
    while (++k < calls && !barriers);
    time += (MPI_Wtime() - start) / calls * 1e6;
  }
  PMPI_Allreduce(MPI_IN_PLACE, &time, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return time;
}

static double median_of(enum kind kind, float* in, float* out, int count, int iterations) {
  double* times = malloc((size_t)iterations * sizeof(double));
  for (int i = -2; i < iterations; ++i) {
    const double time = time_of(kind, in, out, count);
    if (i >= 0) times[i] = time;
  }
  qsort(times, (size_t)iterations, sizeof(double), by_value);
  const double median = times[iterations / 2];
  free(times);
  return median;
}

static const char help[] =
  "mpi_collectives: times MPI's collectives; plain MPI, to be run with and without libddl_mpi (mpi_program.py)\n\n"
  "  mpirun -n 2 mpi_collectives 1024 1048576                                 sizes in bytes\n"
  "  mpirun -n 2 -x LD_PRELOAD=libddl_mpi.so mpi_collectives 1024 1048576\n\n"
  "  --allocated      memory from MPI_Alloc_mem; default: from malloc\n"
  "  --barriers       a barrier before each call, as in a program that computes in between\n"
  "  --iterations N   default 20\n\n"
  "A line for each collective and size: its name, the bytes of a rank's largest buffer, the median over iterations of\n"
  "the slowest rank's time in us, and whether the result was right. All ranks start an iteration after a barrier,\n"
  "which is not part of its time; an iteration is 20 calls back to back, 5 from 64 KiB on, or each after a barrier.\n"
  "Barriers are the program's own, in memory that the ranks share; between hosts, MPI_Barrier.\n"
  "The first line and the last one are \"cores\", and a cache line's time in us from the first processor to the second and\n"
  "back (0: there is no second one): a virtual machine's cores may move.\n";

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "--help") == 0) {
    fputs(help, stdout);
    return 0;
  }
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int allocated = 0, iterations = 20, first = 1;
  for (; first < argc && argv[first][0] == '-'; ++first) {
    if (strcmp(argv[first], "--allocated") == 0) allocated = 1;
    else if (strcmp(argv[first], "--barriers") == 0) barriers = 1;
    else if (strcmp(argv[first], "--iterations") == 0 && first + 1 < argc) iterations = atoi(argv[++first]);
    else first = argc;
  }
  if (first >= argc || iterations < 1) {
    if (rank == 0) fprintf(stderr, "mpi_collectives: expected [--allocated] [--barriers] [--iterations N] BYTES...; --help says more\n");
    MPI_Finalize();
    return 2;
  }
  print_cores();
  open_meeting();
  for (int a = first; a < argc; ++a) {
    const int count = (int)(strtol(argv[a], NULL, 10) / (long)sizeof(float));
    if (count < size) {
      if (rank == 0) fprintf(stderr, "mpi_collectives: found %s bytes, expected 4 or more for each rank\n", argv[a]);
      MPI_Abort(MPI_COMM_WORLD, 2);
    }
    float *in, *out;
    const size_t bytes = (size_t)count * sizeof(float);
    if (allocated) {
      MPI_Alloc_mem((MPI_Aint)bytes, MPI_INFO_NULL, &in);
      MPI_Alloc_mem((MPI_Aint)bytes, MPI_INFO_NULL, &out);
    } else {
      in = malloc(bytes);
      out = malloc(bytes);
    }
    for (int kind = 0; kind < kinds; ++kind) {
      for (int i = 0; i < count; ++i) in[i] = (float)(rank + 1);
      memset(out, 0, bytes);
      call((enum kind)kind, in, out, count);
      int right = is_right((enum kind)kind, in, out, count);
      PMPI_Allreduce(MPI_IN_PLACE, &right, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
      const double median = median_of((enum kind)kind, in, out, count, iterations);
      if (rank == 0) printf("%s %zu %.3f %s\n", names[kind], bytes, median, right ? "right" : "WRONG");
      fflush(stdout);
    }
    if (allocated) {
      MPI_Free_mem(in);
      MPI_Free_mem(out);
    } else {
      free(in);
      free(out);
    }
  }
  print_cores();
  if (meeting != NULL) MPI_Win_free(&window);
  MPI_Finalize();
  return 0;
}
