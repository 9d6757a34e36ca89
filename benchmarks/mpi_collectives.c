/* Times MPI's collectives. A plain MPI program, to be run with and without libddl_mpi (mpi_program.py).
 *   mpi_collectives [--allocated] [--barriers] [--iterations N] BYTES...
 * A line for each collective and size: its name, the bytes of the largest buffer of a rank, and the median over
 * iterations of the slowest rank's time in us. All ranks start an iteration after a barrier, which is not part of
 * its time; in an iteration there are 20 calls back to back, 5 from 64 KiB on; with --barriers, each after a barrier.
 * Memory is malloc's; with --allocated, MPI_Alloc_mem's. The first result of each is checked. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size, barriers;

enum kind { allreduce, bcast, reduce_scatter, allgather, kinds };
static const char* const names[kinds] = {"MPI_Allreduce", "MPI_Bcast", "MPI_Reduce_scatter_block",
                                         "MPI_Allgather"};

static void call(enum kind kind, float* in, float* out, int count) {
  const int each = count / size;
  switch (kind) {
    case allreduce: MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
    case bcast: MPI_Bcast(in, count, MPI_FLOAT, 0, MPI_COMM_WORLD); break;
    case reduce_scatter: MPI_Reduce_scatter_block(in, out, each, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
    default: MPI_Allgather(in, each, MPI_FLOAT, out, each, MPI_FLOAT, MPI_COMM_WORLD); break;
  }
}

static int is_right(enum kind kind, const float* in, const float* out, int count) {
  const int each = count / size;
  switch (kind) {
    case bcast: return in[count - 1] == 1;
    case allgather: return each == 0 || (out[each - 1] == 1 && out[each * size - 1] == (float)size);
    case reduce_scatter: return each == 0 || out[each - 1] == (float)(size * (size + 1) / 2);
    default: return out[count - 1] == (float)(size * (size + 1) / 2);
  }
}

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double median_us(enum kind kind, float* in, float* out, int count, int iterations) {
  const int calls = count * sizeof(float) < 64 * 1024 ? 20 : 5;
  double* times = malloc((size_t)iterations * sizeof(double));
  for (int i = -2; i < iterations; ++i) {
    double time = 0;
    for (int k = 0; k < calls;) {
      PMPI_Barrier(MPI_COMM_WORLD);
      const double start = MPI_Wtime();
      do call(kind, in, out, count);
      while (++k < calls && !barriers);
      time += (MPI_Wtime() - start) / calls * 1e6;
    }
    PMPI_Allreduce(MPI_IN_PLACE, &time, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (i >= 0) times[i] = time;
  }
  qsort(times, (size_t)iterations, sizeof(double), by_value);
  const double result = times[iterations / 2];
  free(times);
  return result;
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
  "which is not part of its time; an iteration is 20 calls back to back, 5 from 64 KiB on, or each after a barrier.\n";

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
      const double time = median_us((enum kind)kind, in, out, count, iterations);
      if (rank == 0) printf("%s %zu %.2f %s\n", names[kind], bytes, time, right ? "right" : "WRONG");
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
  MPI_Finalize();
  return 0;
}
