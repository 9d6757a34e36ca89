#ifndef DDL_DDL_H
#define DDL_DDL_H

/** @file
 * The library for C and for what can call C: link libddl_c (-lddl_c). Names are those of the C++ classes,
 * whose headers say more: ddl_reducer is ddl::GradientReducer (ddl/gradient_reducer.hpp), and so on.
 *
 * Functions that return int return DDL_OK, which is 0, or what went wrong; ddl_error_message says what
 * exactly, and what to do. Exceptions: ddl_rank, ddl_size and ddl_local_rank return a number, or -1. Nothing
 * here ends the program. After an error of a collective call the job cannot go on: later calls return the
 * same error, and what is left is ddl_finalize.
 *
 * Collective calls are made by all ranks, in the same order, with the same count, type, op and root. One
 * thread at a time calls, but for ddl_reducer_ready and ddl_reducer_absent, which any thread may call. Calls
 * before ddl_init or after ddl_finalize fail. One job per process: there is no second ddl_init after
 * ddl_finalize. Handles that are left over (works, reducers, samplers, checkpoints) are freed by
 * ddl_finalize. */

#include <stddef.h>
#include <stdint.h>

#include "ddl/version.h"

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

enum {
  DDL_OK = 0,
  DDL_INVALID_ARGUMENT = 1, /**< The caller passed something that cannot work. */
  DDL_MISMATCH = 2,         /**< Ranks disagree about what they call. */
  DDL_TIMEOUT = 3,          /**< A deadline passed while waiting for a rank (DDL_DEADLINE, in seconds). */
  DDL_PEER_FAILED = 4,      /**< A rank died, or gave up. */
  DDL_TRANSPORT = 5,        /**< Shared memory, a socket or MPI refused to work. */
  DDL_IO = 6,               /**< A file could not be read or written. */
  DDL_CORRUPT_DATA = 7,     /**< Input from outside is damaged. */
  DDL_UNSUPPORTED = 8,      /**< Not available in this build, or on this machine. */
  DDL_INTERNAL = 9,         /**< A defect of the library; please report it. */
  DDL_NOT_INITIALIZED = 10  /**< Before ddl_init, or after ddl_finalize. */
};

/** Types of elements. */
enum { DDL_U8 = 0, DDL_I32 = 1, DDL_I64 = 2, DDL_F32 = 3, DDL_F64 = 4, DDL_F16 = 5, DDL_BF16 = 6 };

/** How elements are reduced. Averages of integers truncate towards zero. */
enum { DDL_SUM = 0, DDL_AVG = 1, DDL_MIN = 2, DDL_MAX = 3, DDL_PROD = 4 };

/** The library's version, "0.1.0": that of the library that runs, where the macros are the header's. */
const char* ddl_version(void);

/** Joins the job that mpirun, or variables RANK and WORLD_SIZE, tell of; else a job of this process alone.
 * `options`: as the variable DDL_OPTIONS, which it takes the place of, for instance "-mode p -dbg_level 2";
 * or null. Calls MPI_Init if nobody has. Collective. */
int ddl_init(const char* options);
/** The same for a part of an MPI program: the ranks are those of a communicator, in their order. Other
 * processes take no part, and may be a job of their own. `communicator`: the address of an MPI_Comm, which is
 * duplicated. MPI must be initialized, and be finalized after ddl_finalize. Collective over it.
 * DDL_INVALID_ARGUMENT for MPI_COMM_NULL and intercommunicators, DDL_UNSUPPORTED in a build without MPI. */
int ddl_init_mpi(const char* options, const void* communicator);
/** Leaves the job, after all collective calls; calls MPI_Finalize if ddl_init has called MPI_Init. Memory
 * from ddl_malloc is given back. Collective, unless there was an error. */
int ddl_finalize(void);
/** This rank cannot go on: tells the others, which all fail with `reason`, and prints it. Not collective. */
int ddl_abort(const char* reason);

int ddl_rank(void);       /**< 0 to ddl_size() - 1, or -1. */
int ddl_size(void);       /**< The number of ranks, or -1. */
int ddl_local_rank(void); /**< This rank's index among those of its host, or -1. */

/** Of the last call of this thread that failed; empty if there is none. Valid until its next one that fails.
 */
const char* ddl_error_message(void);
/** "invalid_argument", and so on. */
const char* ddl_error_name(int error);

/* --- Memory ----------------------------------------------------------------------------------------------
 */

/** `bytes` bytes of zeros that the ranks of a host share, so that collectives on them need no copies.
 * `alignment`: a power of two, 4096 at most. *memory is null if it fails. Not collective. */
int ddl_malloc(void** memory, size_t alignment, size_t bytes);
/** Of ddl_malloc; null is fine. */
int ddl_free(void* memory);

/* --- Collectives (ddl/communicator.hpp) ------------------------------------------------------------------
 */

/** Afterwards all ranks' `data` holds the reduction of all, with the same bits. IBM's name for
 * ddl_all_reduce.
 */
int ddl_allreduce(void* data, int64_t count, int type, int op);
int ddl_all_reduce(void* data, int64_t count, int type, int op);
/** Afterwards all ranks' `data` holds `root`'s. */
int ddl_broadcast(void* data, int64_t count, int type, int root);
/** `input`: ddl_size() pieces of `count` elements. Afterwards `output` holds the reduction of all ranks'
 * piece number ddl_rank(). In place: `output` is that piece of `input`. */
int ddl_reduce_scatter(const void* input, void* output, int64_t count, int type, int op);
/** Afterwards `output` holds every rank's `count` elements of `input`, by rank. In place: `input` is piece
 * number ddl_rank() of `output`. */
int ddl_all_gather(const void* input, void* output, int64_t count, int type);
/** Afterwards `root`'s `data` holds the reduction of all ranks'. The others' is left as it was. */
int ddl_reduce(void* data, int64_t count, int type, int op, int root);
/** Returns after every rank has called it. */
int ddl_barrier(void);

/** The same without waiting: *work is under way, and `data` must be left alone until ddl_wait returns. */
typedef struct ddl_work ddl_work;
int ddl_all_reduce_start(void* data, int64_t count, int type, int op, ddl_work** work);
int ddl_broadcast_start(void* data, int64_t count, int type, int root, ddl_work** work);
int ddl_reduce_scatter_start(const void* input, void* output, int64_t count, int type, int op,
                             ddl_work** work);
int ddl_all_gather_start(const void* input, void* output, int64_t count, int type, ddl_work** work);
/** *done: 1 if it is over, else 0. Does not block. */
int ddl_test(ddl_work* work, int* done);
/** Returns when it is over, with what it ended with, and frees it; null is fine. */
int ddl_wait(ddl_work* work);

/* --- Gradients (ddl/gradient_reducer.hpp) ----------------------------------------------------------------
 */

/** One parameter's gradient: `count` floats that stay where they are while the reducer lives. `row_width`:
 * elements of a row, for an embedding's of which a step touches few rows, else 0. */
typedef struct {
  const char* name;
  float* values;
  int64_t count;
  int64_t row_width;
} ddl_gradient;

/** What backward leaves in the gradients. Neither is 0: it has to be said. */
enum {
  DDL_GRADIENT_SUMS = 1, /**< Sums over this rank's items; their number may be given to ddl_reducer_wait. */
  DDL_GRADIENT_MEANS = 2 /**< Means over this rank's items; their number is given to ddl_reducer_begin. */
};

/** Zeros but for `gradients`: the defaults. */
typedef struct {
  int gradients;
  int64_t bucket_bytes; /**< At most so many bytes a bucket; 0: chosen. */
  int wire;             /**< What travels between hosts: 0 as it is, DDL_BF16 or DDL_F16. */
  int after_backward;   /**< 1: everything is reduced in ddl_reducer_wait. */
} ddl_reducer_options;

/** What a step's reduction ends with, the same on all ranks. */
typedef struct {
  double weight; /**< Items of all ranks. */
  double norm;   /**< Of the mean gradients. */
  int finite;    /**< 0: some are not, and no rank should update its model. */
} ddl_step;

typedef struct ddl_reducer ddl_reducer;
/** Collective. The gradients' names and the array may go afterwards; their values may not. */
int ddl_reducer_create(const ddl_gradient* gradients, int count, const ddl_reducer_options* options,
                       ddl_reducer** reducer);
/** Starts a step over `weight` items. May be left out where ddl_reducer_wait gets the weight. */
int ddl_reducer_begin(ddl_reducer* reducer, double weight);
/** Gradient `index` is final on this rank for this step, and may be reduced. Any thread. */
int ddl_reducer_ready(ddl_reducer* reducer, int index);
/** The same; only these rows hold anything but zeros. */
int ddl_reducer_ready_rows(ddl_reducer* reducer, int index, const int32_t* rows, int64_t count);
/** Gradient `index` gets no value on this rank in this step. Any thread. */
int ddl_reducer_absent(ddl_reducer* reducer, int index);
/** Ends the step: the gradients are now means over all ranks' items. `weight`: this rank's, or DDL_GIVEN if
 * ddl_reducer_begin was told. `step` may be null. Collective. */
#define DDL_GIVEN (-1.0)
int ddl_reducer_wait(ddl_reducer* reducer, double weight, ddl_step* step);
/** Micro-batches: between ddl_reducer_no_sync(r, 1) and ddl_reducer_no_sync(r, 0), ddl_reducer_wait reduces
 * nothing. */
int ddl_reducer_no_sync(ddl_reducer* reducer, int on);
/** Of the last step: *has_value is 1 if any rank had a value for gradient `index`, else 0: it was absent on
 * all of them, and an optimiser may pass over its parameter. */
int ddl_reducer_has_gradient(ddl_reducer* reducer, int index, int* has_value);
/** Null is fine. */
int ddl_reducer_free(ddl_reducer* reducer);

/* --- Data and learning rate (ddl/sharded_sampler.hpp, ddl/learning_rate_scaling.hpp) -----------------------
 */

typedef struct ddl_sampler ddl_sampler;
/** Deals samples 0 to size - 1 to the ranks, `batch_size` a rank and step, in an order that `seed` decides.
 * `shuffle` 0: in order of index. */
int ddl_sampler_create(int64_t size, int64_t batch_size, uint64_t seed, int shuffle, ddl_sampler** sampler);
/** This rank's *count samples of the next step, valid until the next call. */
int ddl_sampler_next(ddl_sampler* sampler, const size_t** samples, size_t* count);
/** The same in every epoch. */
int ddl_sampler_steps_per_epoch(ddl_sampler* sampler, int64_t* steps);
/** Null is fine. */
int ddl_sampler_free(ddl_sampler* sampler);

/** How the learning rate grows with the number of ranks n. */
enum { DDL_SCALE_NONE = 0, DDL_SCALE_LINEAR = 1, DDL_SCALE_SQUARE_ROOT = 2 };
/** *scaled: the single worker's `rate`, times n or its root; growing from `rate` over the first `ramp_steps`
 * steps. */
int ddl_learning_rate(double rate, int rule, int64_t step, int64_t ramp_steps, double* scaled);

/* --- Parameters and checkpoints (ddl/broadcast_parameters.hpp, ddl/checkpoint.hpp) -------------------------
 */

/** Part of a model: elements of `type`. */
typedef struct {
  const char* name;
  void* values;
  int64_t count;
  int type;
} ddl_tensor;

/** Gives every rank `root`'s tensors, and makes sure that all have the same bits then: DDL_MISMATCH names the
 * first that differs in name, type or size before anything is touched. Collective. */
int ddl_broadcast_parameters(const ddl_tensor* tensors, int count, int root);
/** Compares the tensors' bits over all ranks, and names the first that differs
 * (DDL_MISMATCH). Collective. */
int ddl_check_same(const ddl_tensor* tensors, int count);

typedef struct ddl_checkpoint ddl_checkpoint;
/** Checkpoints in `directory`, of which the newest `keep` stay (0: 5). The sampler's state, if it is not
 * null, is saved and restored with them. `handle_signals` 1: SIGUSR1 asks for a save, SIGTERM for a save and
 * an end. */
int ddl_checkpoint_create(const char* directory, int keep, int handle_signals, ddl_sampler* sampler,
                          ddl_checkpoint** checkpoint);
/** Saves rank 0's tensors; durable when it returns. Collective. */
int ddl_checkpoint_save(ddl_checkpoint* checkpoint, int64_t step, const ddl_tensor* tensors, int count);
/** Fills the tensors, on all ranks, from the newest one that is whole; *step: the one it was saved with, or
 * -1 if there is none. Collective. */
int ddl_checkpoint_restore(ddl_checkpoint* checkpoint, const ddl_tensor* tensors, int count, int64_t* step);
enum { DDL_GO_ON = 0, DDL_SAVE = 1, DDL_SAVE_AND_END = 2 };
/** What signals have asked of any rank, the same on all. Call it once a step. Collective. */
int ddl_checkpoint_poll(ddl_checkpoint* checkpoint, int* request);
/** Null is fine. */
int ddl_checkpoint_free(ddl_checkpoint* checkpoint);

/** What only rank 0 does: `if (ddl_root_begin("log")) { ... } ddl_root_end(NULL);`. The others wait in
 * ddl_root_end, however long it takes. ddl_root_begin returns 1 on rank 0, else 0. `problem`: null, or what
 * went wrong on rank 0; ddl_root_end then fails on all ranks with it. Both are collective. */
int ddl_root_begin(const char* name);
int ddl_root_end(const char* problem);

/* --- Timeline (ddl/timeline.hpp)
 * ----------------------------------------------------------------------------- */

/** From ddl_scope_begin to ddl_scope_end this rank does what `name` says; scopes nest. Costs a look at a
 * pointer unless DDL_TIMELINE names a file. */
int ddl_scope_begin(const char* name);
int ddl_scope_end(void);

#ifdef MPI_VERSION
/** As MPI_Allreduce in place: for programs that have included mpi.h before this file. `options` as those of
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
