/* MPI_Comm_idup of two communicators while large messages are in flight on one of them. Each rank starts its
 * requests in an order of its own, and completes them in another. Only one duplication of a communicator is
 * outstanding at a time: Open MPI 4.1 can deadlock with two. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { elements = 1 << 18, rounds = 12 };
enum { message_out, message_in, copy_of_world, copy_of_own, requests };

static int rank, size, copied, deleted;

static void expect(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "rank %d: %s\n", rank, what);
  MPI_Abort(MPI_COMM_WORLD, 3);
}

static int copy_attribute(MPI_Comm comm, int key, void* extra, void* from, void* to, int* flag) {
  (void)comm, (void)key, (void)extra;
  *(void**)to = from;
  *flag = 1;
  ++copied;
  return MPI_SUCCESS;
}

static int delete_attribute(MPI_Comm comm, int key, void* value, void* extra) {
  (void)comm, (void)key, (void)value, (void)extra;
  ++deleted;
  return MPI_SUCCESS;
}

static void complete(MPI_Request request[requests], int round) {
  int done = 0, index;
  switch ((rank + round) % 4) {
    case 0:
      MPI_Waitall(requests, request, MPI_STATUSES_IGNORE);
      break;
    case 1:
      for (int i = 0; i < requests; ++i) MPI_Waitany(requests, request, &index, MPI_STATUS_IGNORE);
      break;
    case 2:
      while (!done) MPI_Testall(requests, request, &done, MPI_STATUSES_IGNORE);
      break;
    default:
      for (int i = 0; i < requests; ++i) {
        MPI_Request* const next = &request[round % 2 == 0 ? i : requests - 1 - i];
        for (done = 0; !done;) MPI_Test(next, &done, MPI_STATUS_IGNORE);
      }
  }
}

static void check_copy(MPI_Comm parent, MPI_Comm copy) {
  int sum = rank, relation = MPI_UNEQUAL;
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, copy);
  expect(sum == size * (size - 1) / 2, "a wrong sum on a duplicate");
  MPI_Comm_compare(parent, copy, &relation);
  expect(relation == MPI_CONGRUENT, "not a duplicate");
}

static void exchange(MPI_Comm own, int key, int round) {
  static int out[elements], in[elements];
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  MPI_Request request[requests];
  MPI_Comm world_copy = MPI_COMM_NULL, own_copy = MPI_COMM_NULL;
  for (int i = 0; i < elements; ++i) out[i] = rank + round + i;
  for (int i = 0; i < requests; ++i) {
    const int which = (i + rank + round) % requests;
    MPI_Request* const started = &request[which];
    if (which == message_out) MPI_Isend(out, elements, MPI_INT, next, round, MPI_COMM_WORLD, started);
    if (which == message_in) MPI_Irecv(in, elements, MPI_INT, previous, round, MPI_COMM_WORLD, started);
    if (which == copy_of_world) MPI_Comm_idup(MPI_COMM_WORLD, &world_copy, started);
    if (which == copy_of_own) MPI_Comm_idup(own, &own_copy, started);
  }
  complete(request, round);
  for (int i = 0; i < elements; ++i) expect(in[i] == previous + round + i, "a wrong message");

  check_copy(MPI_COMM_WORLD, world_copy);
  check_copy(own, own_copy);
  int found = 0;
  void* value = NULL;
  MPI_Comm_get_attr(own_copy, key, &value, &found);
  expect(found && value == &rank, "an attribute was not copied");
  expect(MPI_Allreduce(MPI_IN_PLACE, &found, -1, MPI_INT, MPI_SUM, own_copy) != MPI_SUCCESS,
         "a negative count was accepted"); /* and MPI_ERRORS_RETURN was inherited, or this would not be
                                              reached */
  MPI_Comm_free(&own_copy);
  MPI_Comm_free(&world_copy);
  expect(copied == round + 1 && deleted == round + 1, "an attribute was not copied once, and deleted once");
}

int main(int argc, char** argv) {
  int key = MPI_KEYVAL_INVALID;
  MPI_Comm own;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_dup(MPI_COMM_WORLD, &own);
  MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
  MPI_Comm_create_keyval(copy_attribute, delete_attribute, &key, NULL);
  MPI_Comm_set_attr(own, key, &rank);
  for (int round = 0; round < rounds; ++round) exchange(own, key, round);
  MPI_Comm_free(&own);
  expect(deleted == rounds + 1, "an attribute outlived its communicator");
  MPI_Comm_free_keyval(&key);
  if (rank == 0) printf("idup: %d rounds, %d ranks\n", rounds, size);
  MPI_Finalize();
  return 0;
}
