/* Threads of an MPI program, each with its own communicator: blocking calls, non-blocking ones, which MPI serves, and messages. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { threads = 3, turns = 60 };

static int rank, size;

struct job {
  MPI_Comm comm;
  int number, wrong;
};

static void* work(void* argument) {
  struct job* job = argument;
  const int n = 200000;
  double* in = malloc((size_t)n * sizeof(double));
  double* out = malloc((size_t)n * sizeof(double));
  for (int i = 0; i < n; ++i) in[i] = rank + job->number;
  const double expected = size * (size - 1) / 2.0 + (double)size * job->number;
  for (int turn = 0; turn < turns; ++turn) {
    const int count = turn % 4 == 0 ? n : 3;
    MPI_Request requests[2];
    int from = -1;
    MPI_Iallreduce(in, out, count, MPI_DOUBLE, MPI_SUM, job->comm, &requests[0]);
    MPI_Irecv(&from, 1, MPI_INT, (rank + 1) % size, turn, job->comm, &requests[1]);
    MPI_Send(&turn, 1, MPI_INT, (rank + size - 1) % size, turn, job->comm);
    if (turn % 2 == 0) {
      MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    } else {
      for (int over = 0; !over;) MPI_Testall(2, requests, &over, MPI_STATUSES_IGNORE);
    }
    if (out[count - 1] != expected || from != turn) ++job->wrong;
    double sum = rank;
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_DOUBLE, MPI_SUM, job->comm);
    if (sum != size * (size - 1) / 2) ++job->wrong;
  }
  free(in);
  free(out);
  return NULL;
}

int main(int argc, char** argv) {
  int provided;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (provided < MPI_THREAD_MULTIPLE) {
    if (rank == 0) printf("threads: this MPI has no MPI_THREAD_MULTIPLE\n");
    MPI_Finalize();
    return 0;
  }
  pthread_t ids[threads];
  struct job jobs[threads];
  int wrong = 0;
  for (int i = 0; i < threads; ++i) {
    jobs[i].number = i;
    jobs[i].wrong = 0;
    MPI_Comm_dup(MPI_COMM_WORLD, &jobs[i].comm);
  }
  for (int i = 0; i < threads; ++i) pthread_create(&ids[i], NULL, work, &jobs[i]);
  for (int i = 0; i < threads; ++i) pthread_join(ids[i], NULL);
  for (int i = 0; i < threads; ++i) {
    wrong += jobs[i].wrong;
    MPI_Comm_free(&jobs[i].comm);
  }
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("threads: %d wrong\n", wrong);
  MPI_Finalize();
  return 0;
}
