/* Messages that must progress while a rank waits elsewhere.
 * First rank 0 broadcasts to a slow receiver and waits for its answer in MPI. (This does not cover Engine's handling
 * of messages that full buffers hold back; it passes without it.) Then rank 0 sends a message too large to leave
 * without progress and calls MPI_Allreduce, which the last rank calls only after it has received the message. So the
 * sum can complete only if the message progresses while rank 0 waits for it; without `Meanwhile` this fails. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int rank, size;

static void broadcast_to_the_slow(void) {
  enum { bytes = 64 << 10, times = 500, slow_from = 250, slow_to = 350 };
  char* block = calloc(bytes, 1);
  const int last = size - 1;
  MPI_Bcast(block, bytes, MPI_CHAR, 0, MPI_COMM_WORLD); /* connections are made */
  if (rank == last) usleep(500000);
  for (int i = 0; i < times; ++i) {
    block[bytes - 1] = rank == 0 ? (char)i : 0;
    MPI_Bcast(block, bytes, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (block[bytes - 1] != (char)i) MPI_Abort(MPI_COMM_WORLD, 3);
    if (rank == last && i >= slow_from && i < slow_to) usleep(15000);
  }
  int answer = 7;
  if (rank == last) MPI_Send(&answer, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
  if (rank == 0) MPI_Recv(&answer, 1, MPI_INT, last, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  free(block);
}

/* Calls of no elements complete at once: rank 0 completes its own before the other ranks make theirs. */
static void do_nothing(void) {
  int* counts = calloc((size_t)size, sizeof *counts);
  double unused = 0;
  for (int turn = 0; turn < 2; ++turn) {
    if ((turn == 0) != (rank == 0)) continue;
    if (turn == 1) MPI_Recv(&unused, 1, MPI_DOUBLE, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Allreduce(MPI_IN_PLACE, &unused, 0, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Bcast(&unused, 0, MPI_DOUBLE, size - 1, MPI_COMM_WORLD);
    MPI_Reduce_scatter(MPI_IN_PLACE, &unused, counts, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Reduce_scatter_block(MPI_IN_PLACE, &unused, 0, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DOUBLE, &unused, 0, MPI_DOUBLE, MPI_COMM_WORLD);
    for (int other = 1; turn == 0 && other < size; ++other) {
      MPI_Send(&unused, 1, MPI_DOUBLE, other, 9, MPI_COMM_WORLD);
    }
  }
  free(counts);
}

int main(int argc, char** argv) {
  enum { n = 16 << 20 };
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  broadcast_to_the_slow();
  do_nothing();
  char* data = calloc(n, 1);
  double sum = 1;
  for (int turn = 0; turn < 3; ++turn) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (rank == 0) {
      data[n - 1] = (char)(40 + turn);
      MPI_Isend(data, n, MPI_CHAR, size - 1, turn, MPI_COMM_WORLD, &request);
    }
    if (rank == size - 1) MPI_Recv(data, n, MPI_CHAR, 0, turn, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    sum = 1;
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (sum != size || (rank == size - 1 && data[n - 1] != 40 + turn)) MPI_Abort(MPI_COMM_WORLD, 3);
  }
  if (rank == 0) printf("the message moved on, %g ranks\n", sum);
  free(data);
  MPI_Finalize();
  return 0;
}
