/* An MPI program that does not know ddl. Prints a line for each part: a hash over all ranks' results, which must be
 * the same whichever library serves the calls. All numbers are integers that every type represents exactly.
 *   plain_mpi_program [errors]: with `errors`, prints what a call returns that the other ranks do not make. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;
static uint64_t hash = 0xcbf29ce484222325u;

static void add(const void* data, size_t bytes) {
  const unsigned char* byte = data;
  for (size_t i = 0; i < bytes; ++i) hash = (hash ^ byte[i]) * 0x100000001b3u;
}

static void end_of(const char* part) {
  uint64_t all[64] = {0};
  if (rank != 0) MPI_Send(&hash, 1, MPI_UINT64_T, 0, 99, MPI_COMM_WORLD);
  if (rank == 0) {
    all[0] = hash;
    for (int i = 1; i < size; ++i) {
      MPI_Recv(&all[i], 1, MPI_UINT64_T, i, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    uint64_t sum = 0;
    for (int i = 0; i < size; ++i) sum = sum * 31 + all[i];
    printf("%-28s %016llx\n", part, (unsigned long long)sum);
    fflush(stdout);
  }
}

static void fail(const char* what) {
  fprintf(stderr, "rank %d: %s\n", rank, what);
  MPI_Abort(MPI_COMM_WORLD, 3);
}

/* Values 1 to 3, so that products of 16 ranks fit. */
static int value(int of_rank, int i) { return 1 + (of_rank + i) % 3; }

#define FILL(T, data, n, of_rank) \
  for (int k_ = 0; k_ < (n); ++k_) ((T*)(data))[k_] = (T)value(of_rank, k_)

static void fill(MPI_Datatype type, void* data, int n, int of_rank) {
  if (type == MPI_FLOAT) FILL(float, data, n, of_rank);
  else if (type == MPI_DOUBLE) FILL(double, data, n, of_rank);
  else if (type == MPI_INT || type == MPI_UNSIGNED) FILL(int, data, n, of_rank);
  else if (type == MPI_LONG || type == MPI_INT64_T || type == MPI_UNSIGNED_LONG) FILL(long, data, n, of_rank);
  else if (type == MPI_UNSIGNED_CHAR) FILL(unsigned char, data, n, of_rank);
  else if (type == MPI_SHORT) FILL(short, data, n, of_rank);
  else if (type == MPI_LONG_DOUBLE) {
    memset(data, 0, (size_t)n * sizeof(long double)); /* its gaps are hashed, too */
    FILL(long double, data, n, of_rank);
  } else if (type == MPI_C_FLOAT_COMPLEX) FILL(float, data, 2 * n, of_rank);
  else fail("fill: unknown type");
}

static void* memory(size_t bytes) {
  void* data = malloc(bytes + 1);
  if (data == NULL) fail("out of memory");
  memset(data, 0x5a, bytes + 1);
  return data;
}

/* Adds n numbers to the hash; long doubles by value, because they have padding. */
static void add_all(MPI_Datatype type, const void* data, int n) {
  int bytes;
  MPI_Type_size(type, &bytes);
  if (type != MPI_LONG_DOUBLE) {
    add(data, (size_t)n * (size_t)bytes);
    return;
  }
  for (int i = 0; i < n; ++i) {
    const double number = (double)((const long double*)data)[i];
    add(&number, sizeof number);
  }
}

static const int counts[] = {0, 1, 7, 1000, 300001};
enum { count_of_counts = sizeof counts / sizeof counts[0] };

static void user_sum(void* in, void* inout, int* n, MPI_Datatype* type) {
  (void)type;
  for (int i = 0; i < *n; ++i) ((int*)inout)[i] += ((int*)in)[i];
}

static void blocking_reductions(MPI_Comm comm, MPI_Datatype* types, int n_types) {
  const MPI_Op ops[] = {MPI_SUM, MPI_PROD, MPI_MAX, MPI_MIN};
  int members, me;
  MPI_Comm_size(comm, &members);
  MPI_Comm_rank(comm, &me);
  for (int t = 0; t < n_types; ++t) {
    for (int o = 0; o < 4; ++o) {
      if (types[t] == MPI_C_FLOAT_COMPLEX && ops[o] != MPI_SUM) continue;
      if (types[t] == MPI_UNSIGNED_CHAR && ops[o] == MPI_PROD) continue;
      for (int c = 0; c < count_of_counts; ++c) {
        const int n = counts[c];
        void* in = memory((size_t)n * 16);
        void* out = memory((size_t)n * 16);
        fill(types[t], in, n, me);
        MPI_Allreduce(in, out, n, types[t], ops[o], comm);
        add_all(types[t], out, n);
        const int root = c % members;
        if (me == root) memset(out, 0x5a, (size_t)n * 16);
        MPI_Reduce(in, me == root ? out : NULL, n, types[t], ops[o], root, comm);
        if (me == root) add_all(types[t], out, n);
        if (me == root) MPI_Reduce(MPI_IN_PLACE, in, n, types[t], ops[o], root, comm);
        else MPI_Reduce(in, NULL, n, types[t], ops[o], root, comm);
        if (me == root) add_all(types[t], in, n);
        fill(types[t], in, n, me);
        MPI_Allreduce(MPI_IN_PLACE, in, n, types[t], ops[o], comm);
        add_all(types[t], in, n);
        free(in);
        free(out);
      }
    }
  }
  /* A sum whose value is known without running MPI's own. */
  double three = 3, sum = 0;
  MPI_Allreduce(&three, &sum, 1, MPI_DOUBLE, MPI_SUM, comm);
  if (sum != 3.0 * members) fail("MPI_Allreduce: wrong sum");
}

static void other_operations(void) {
  int bits[3] = {1 << rank, rank, 7};
  MPI_Allreduce(MPI_IN_PLACE, bits, 3, MPI_INT, MPI_BOR, MPI_COMM_WORLD);
  add(bits, sizeof bits);
  struct {
    double number;
    int where;
  } place = {(double)((rank * 7) % size), rank};
  MPI_Allreduce(MPI_IN_PLACE, &place, 1, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
  add(&place.where, sizeof place.where);
  MPI_Op op;
  MPI_Op_create(user_sum, 1, &op);
  int numbers[100];
  for (int i = 0; i < 100; ++i) numbers[i] = rank + i;
  MPI_Allreduce(MPI_IN_PLACE, numbers, 100, MPI_INT, op, MPI_COMM_WORLD);
  add(numbers, sizeof numbers);
  MPI_Op_free(&op);
}

/* The numbers of a program's own error classes; some programs exit with them. */
static void error_classes(void) {
  int* last = NULL;
  int found = 0, class = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, &last, &found);
  if (!found) fail("MPI_LASTUSEDCODE is not set");
  add(last, sizeof *last);
  MPI_Add_error_class(&class);
  add(&class, sizeof class);
}

static void broadcasts(MPI_Comm comm) {
  int members, me;
  MPI_Comm_size(comm, &members);
  MPI_Comm_rank(comm, &me);
  for (int root = 0; root < members; ++root) {
    for (int c = 0; c < count_of_counts; ++c) {
      double* data = memory((size_t)counts[c] * sizeof(double));
      FILL(double, data, counts[c], me == root ? root : 50);
      MPI_Bcast(data, counts[c], MPI_DOUBLE, root, comm);
      add(data, (size_t)counts[c] * sizeof(double));
      if (counts[c] > 0 && data[counts[c] - 1] != value(root, counts[c] - 1)) fail("MPI_Bcast: wrong value");
      free(data);
    }
  }
  /* The root sends every other number and the others receive them contiguously; then the reverse. */
  enum { n = 5000 };
  MPI_Datatype every_other;
  MPI_Type_vector(n, 1, 2, MPI_INT, &every_other);
  MPI_Type_commit(&every_other);
  int* wide = memory(2 * n * sizeof(int));
  for (int turn = 0; turn < 2; ++turn) {
    for (int i = 0; i < 2 * n; ++i) wide[i] = me == 0 ? i + turn : -1;
    if ((me == 0) == (turn == 0)) MPI_Bcast(wide, 1, every_other, 0, comm);
    else MPI_Bcast(wide, n, MPI_INT, 0, comm);
    add(wide, 2 * n * sizeof(int));
    if (turn == 0 && me != 0 && (wide[1] != 2 || wide[n] != -1)) fail("MPI_Bcast: wrong vector");
    if (turn == 1 && me != 0 && (wide[2] != 2 || wide[3] != -1)) fail("MPI_Bcast: wrong place");
  }
  MPI_Type_free(&every_other);
  free(wide);
}

static void reduce_scatters(MPI_Comm comm) {
  int members, me;
  MPI_Comm_size(comm, &members);
  MPI_Comm_rank(comm, &me);
  int* each = memory((size_t)members * sizeof(int));
  for (int kind = 0; kind < 4; ++kind) { /* equal, almost equal, very different, with none */
    for (int c = 1; c < count_of_counts; ++c) {
      const int n = counts[c] / 10 + 1;
      int total = 0;
      for (int i = 0; i < members; ++i) {
        each[i] = kind == 0 ? n : kind == 1 ? n + (i < 1 ? 1 : 0) : kind == 2 ? n * i + 1 : (i % 2) * n;
        total += each[i];
      }
      float* in = memory((size_t)total * sizeof(float));
      float* out = memory((size_t)(each[me] + 1) * sizeof(float));
      FILL(float, in, total, me);
      MPI_Reduce_scatter(in, out, each, MPI_FLOAT, MPI_SUM, comm);
      add(out, (size_t)each[me] * sizeof(float));
      MPI_Reduce_scatter(MPI_IN_PLACE, in, each, MPI_FLOAT, MPI_MAX, comm);
      add(in, (size_t)each[me] * sizeof(float));
      if (kind == 0) {
        FILL(float, in, total, me);
        MPI_Reduce_scatter_block(in, out, n, MPI_FLOAT, MPI_SUM, comm);
        add(out, (size_t)n * sizeof(float));
        MPI_Reduce_scatter_block(MPI_IN_PLACE, in, n, MPI_FLOAT, MPI_SUM, comm);
        add(in, (size_t)n * sizeof(float));
      }
      free(in);
      free(out);
    }
  }
  free(each);
}

static void all_gathers(MPI_Comm comm) {
  int members, me;
  MPI_Comm_size(comm, &members);
  MPI_Comm_rank(comm, &me);
  for (int c = 0; c < count_of_counts; ++c) {
    const int n = counts[c] / 5;
    short* in = memory((size_t)n * sizeof(short));
    short* all = memory((size_t)(n * members) * sizeof(short));
    FILL(short, in, n, me);
    MPI_Allgather(in, n, MPI_SHORT, all, n, MPI_SHORT, comm);
    add(all, (size_t)(n * members) * sizeof(short));
    memset(all, 0, (size_t)(n * members) * sizeof(short));
    FILL(short, all + (size_t)me * (size_t)n, n, me);
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, n, MPI_SHORT, comm);
    add(all, (size_t)(n * members) * sizeof(short));
    free(in);
    free(all);
  }
  /* Columns of a matrix: contiguous data arrive with gaps. */
  enum { rows = 300 };
  MPI_Datatype column, resized;
  MPI_Type_vector(rows, 1, members, MPI_DOUBLE, &column);
  MPI_Type_create_resized(column, 0, sizeof(double), &resized);
  MPI_Type_commit(&resized);
  double mine[rows];
  double* matrix = memory(rows * (size_t)members * sizeof(double));
  for (int i = 0; i < rows; ++i) mine[i] = me * 1000 + i;
  MPI_Allgather(mine, rows, MPI_DOUBLE, matrix, 1, resized, comm);
  add(matrix, rows * (size_t)members * sizeof(double));
  if (matrix[2 * members + members - 1] != (members - 1) * 1000 + 2) fail("MPI_Allgather: wrong column");
  MPI_Type_free(&column);
  MPI_Type_free(&resized);
  free(matrix);
}

static void communicators(void) {
  MPI_Datatype types[] = {MPI_FLOAT, MPI_INT};
  MPI_Comm half, copy, backwards, grid;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &half);
  blocking_reductions(half, types, 2);
  broadcasts(half);
  MPI_Comm_dup(half, &copy);
  all_gathers(copy);
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &backwards);
  all_gathers(backwards);
  reduce_scatters(backwards);
  int dims[1] = {size}, periods[1] = {0};
  MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, &grid); /* a way of making a communicator that is not intercepted */
  broadcasts(grid);
  blocking_reductions(grid, types, 1);
  MPI_Comm_free(&grid);
  MPI_Comm_free(&backwards);
  MPI_Comm_free(&copy);
  MPI_Comm_free(&half);
  int self = rank;
  MPI_Allreduce(MPI_IN_PLACE, &self, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF);
  add(&self, sizeof self);
  /* An intercommunicator of two groups. */
  if (size > 1) {
    MPI_Comm between;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, (rank + 1) % 2, 5, &between);
    int own = rank + 1, sum = 0;
    MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, between);
    add(&sum, sizeof sum);
    MPI_Comm_free(&between);
    MPI_Comm_free(&half);
  }
  for (int i = 0; i < 300; ++i) { /* come and go */
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    int number = rank + i;
    MPI_Allreduce(MPI_IN_PLACE, &number, 1, MPI_INT, MPI_MAX, copy);
    add(&number, sizeof number);
    MPI_Comm_free(&copy);
  }
}

/* Non-blocking calls, which MPI serves, in flight on two communicators beside blocking ones. */
static void beside_non_blocking(void) {
  enum { in_flight = 4, most = 100000 };
  static const int sizes[in_flight] = {1, 50000, 7, most};
  int* data[in_flight];
  int* results[in_flight];
  MPI_Request requests[in_flight];
  MPI_Comm other;
  MPI_Comm_dup(MPI_COMM_WORLD, &other);
  for (int i = 0; i < in_flight; ++i) {
    const int n = sizes[i];
    data[i] = memory((size_t)n * sizeof(int));
    results[i] = memory((size_t)(n * size) * sizeof(int));
    memset(results[i], 0, (size_t)(n * size) * sizeof(int));
    FILL(int, data[i], n, rank + i);
    MPI_Comm comm = i % 2 == 0 ? other : MPI_COMM_WORLD;
    if (i < 2) MPI_Iallreduce(data[i], results[i], n, MPI_INT, MPI_SUM, comm, &requests[i]);
    else MPI_Iallgather(data[i], n, MPI_INT, results[i], n, MPI_INT, comm, &requests[i]);
  }
  for (int i = 0; i < 20; ++i) {
    double number = rank + i;
    MPI_Allreduce(MPI_IN_PLACE, &number, 1, MPI_DOUBLE, MPI_SUM, i % 2 ? other : MPI_COMM_WORLD);
    add(&number, sizeof number);
  }
  MPI_Waitall(in_flight, requests, MPI_STATUSES_IGNORE);
  for (int i = 0; i < in_flight; ++i) {
    add(results[i], (size_t)(sizes[i] * size) * sizeof(int));
    free(data[i]);
    free(results[i]);
  }
  MPI_Comm_free(&other);
}

/* Rank 1 makes a different call, and all ranks check the returned error. */
static int errors(void) {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  static double in[1000], out[1000];
  const int code = MPI_Allreduce(in, out, rank == 1 ? 999 : 1000, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  char text[MPI_MAX_ERROR_STRING];
  int length;
  MPI_Error_string(code, text, &length);
  printf("rank %d: %s: %s\n", rank, code == MPI_SUCCESS ? "success" : "an error", text);
  fflush(stdout);
  return code == MPI_SUCCESS ? 1 : 0;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc > 1 && strcmp(argv[1], "errors") == 0) {
    const int result = errors();
    MPI_Finalize();
    return result;
  }
  MPI_Datatype types[] = {MPI_FLOAT,         MPI_DOUBLE,        MPI_INT,   MPI_UNSIGNED,    MPI_LONG,
                          MPI_UNSIGNED_LONG, MPI_UNSIGNED_CHAR, MPI_SHORT, MPI_LONG_DOUBLE, MPI_C_FLOAT_COMPLEX};
  blocking_reductions(MPI_COMM_WORLD, types, sizeof types / sizeof types[0]);
  end_of("MPI_Allreduce and MPI_Reduce");
  other_operations();
  error_classes();
  end_of("other operations");
  broadcasts(MPI_COMM_WORLD);
  end_of("MPI_Bcast");
  reduce_scatters(MPI_COMM_WORLD);
  end_of("MPI_Reduce_scatter");
  all_gathers(MPI_COMM_WORLD);
  end_of("MPI_Allgather");
  communicators();
  end_of("communicators");
  beside_non_blocking();
  end_of("beside non-blocking calls");
  MPI_Finalize();
  return 0;
}
