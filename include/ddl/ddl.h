#ifndef DDL_DDL_H
#define DDL_DDL_H

/* The library for C, and for what can call C, as Python's ctypes: link libddl_c (-lddl_c).
 *
 * Functions that return int return DDL_OK, which is 0, or what went wrong; `ddl_error_message` says what
 * exactly, and what to do. But for ddl_rank, ddl_size and ddl_local_rank, which return a number, or -1. After
 * an error of a collective call the job cannot go on: the others' calls fail as well, and what is left is
 * ddl_finalize. Nothing here ends the program.
 *
 * Collective calls are made by all ranks, in the same order, with the same count, type, op and root. Calls
 * before ddl_init or after ddl_finalize fail, and so do those of several threads at once. One job per
 * process: there is no second ddl_init after ddl_finalize. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

enum {
  DDL_OK = 0,
  DDL_INVALID_ARGUMENT = 1, /* The caller passed something that cannot work. */
  DDL_MISMATCH = 2,         /* Ranks disagree about what they call. */
  DDL_TIMEOUT = 3,          /* A deadline passed while waiting for a rank (DDL_DEADLINE, in seconds). */
  DDL_PEER_FAILED = 4,      /* A rank died, or gave up. */
  DDL_TRANSPORT = 5,        /* Shared memory, a socket or MPI refused to work. */
  DDL_IO = 6,               /* A file could not be read or written. */
  DDL_CORRUPT_DATA = 7,     /* Input from outside is damaged. */
  DDL_UNSUPPORTED = 8,      /* Not available in this build, or on this machine. */
  DDL_INTERNAL = 9,         /* A defect of the library; please report it. */
  DDL_NOT_INITIALIZED = 10  /* Before ddl_init, or after ddl_finalize. */
};

/* Types of elements. */
enum { DDL_U8 = 0, DDL_I32 = 1, DDL_I64 = 2, DDL_F32 = 3, DDL_F64 = 4, DDL_F16 = 5, DDL_BF16 = 6 };

/* How elements are reduced. Averages of integers truncate towards zero. */
enum { DDL_SUM = 0, DDL_AVG = 1, DDL_MIN = 2, DDL_MAX = 3, DDL_PROD = 4 };

/* Joins the job that mpirun, or variables RANK and WORLD_SIZE, tell of; else a job of this process alone.
 * `options`: as the variable DDL_OPTIONS, which it takes the place of, for instance "-mode p -dbg_level 2";
 * or null. Calls MPI_Init if nobody has. Collective. */
int ddl_init(const char* options);
/* Leaves the job, after all collective calls; calls MPI_Finalize if ddl_init has called MPI_Init. Memory from
 * ddl_malloc is given back. Collective, unless there was an error. */
int ddl_finalize(void);

int ddl_rank(void);       /* 0 to ddl_size() - 1, or -1. */
int ddl_size(void);       /* The number of ranks, or -1. */
int ddl_local_rank(void); /* This rank's index among those of its host, or -1. */

/* `bytes` bytes of zeros that the ranks of a host share, so that collectives on them need no copies.
 * `alignment`: a power of two, 4096 at most. *memory is null if it fails. Not collective. */
int ddl_malloc(void** memory, size_t alignment, size_t bytes);
/* Of ddl_malloc; null is fine. */
int ddl_free(void* memory);

/* Afterwards all ranks' `data` holds the reduction of all, with the same bits. Collective. */
int ddl_allreduce(void* data, int64_t count, int type, int op);
/* Afterwards all ranks' `data` holds `root`'s. Collective. */
int ddl_bcast(void* data, int64_t count, int type, int root);
/* Returns after every rank has called it. Collective. */
int ddl_barrier(void);

/* Of the last call of this thread that failed; empty if there is none. Valid until its next one that fails.
 */
const char* ddl_error_message(void);
/* "invalid_argument", and so on. */
const char* ddl_error_name(int error);

#ifdef MPI_VERSION
/* As MPI_Allreduce in place: for programs that have included mpi.h before this file. `options` as those of
 * ddl_init, which this calls if nobody has; null, empty, or the same in all calls. Types and operations that
 * the library does not have give DDL_UNSUPPORTED, on all ranks alike. Collective over `comm`. */
int ddl_allreduce_mpi(const char* options, void* data, int count, MPI_Datatype type, MPI_Op op,
                      MPI_Comm comm);
#endif

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
