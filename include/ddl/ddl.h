#ifndef DDL_DDL_H
#define DDL_DDL_H

/** @file
 * The C API: for C, older C++ and whatever else can call C. Link libddl_c (-lddl_c). Names are those of the
 * C++ classes, whose headers say more: ddl_reducer is ddl::GradientReducer (ddl/gradient_reducer.hpp), and so
 * on.
 *
 * Errors: functions that return int return DDL_OK (0) or an error code; ddl_error_message says what was
 * found, what was expected and what to do. ddl_rank, ddl_size and ddl_local_rank return a number, or -1.
 * Nothing here ends the program. After an error of a collective call the job cannot go on: later calls return
 * the same error, and only ddl_finalize is left to call.
 *
 * Collective calls: all ranks make them, in the same order, with the same count, type, op and root.
 *
 * Threads: one thread at a time calls; any thread may call ddl_reducer_ready, ddl_reducer_ready_rows and
 * ddl_reducer_absent, at any time unless the gradients are on a device.
 *
 * Life time: calls before ddl_init or after ddl_finalize fail. A process joins one job, once. ddl_finalize
 * frees the handles that are left (works, reducers, samplers, checkpoints), and then leaves the device.
 *
 * Compatibility: the library's soname is libddl_c.so.MAJOR, the first number of its version. Within it,
 * functions keep their names, arguments and meaning, constants keep their values, and structures only grow at
 * their end, where zeros mean the old behaviour. What is to go is marked deprecated for a minor version at
 * least. Version 0 may still change, which the minor version then says. */

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
/** Leaves the job, after all collective calls; calls MPI_Finalize if ddl_init called MPI_Init. Frees memory
 * from ddl_malloc and ddl_device_malloc. Collective, unless there was an error. */
int ddl_finalize(void);
/** Tells the other ranks that this one cannot go on: their calls fail with `reason`, which is printed. Not
 * collective. */
int ddl_abort(const char* reason);

int ddl_rank(void);       /**< 0 to ddl_size() - 1, or -1. */
int ddl_size(void);       /**< The number of ranks, or -1. */
int ddl_local_rank(void); /**< This rank's index among those of its host, or -1. */

/** The message of this thread's last call that failed; empty if none did. Valid until its next call that
 * fails. */
const char* ddl_error_message(void);
/** The name of an error code: "invalid_argument", and so on. */
const char* ddl_error_name(int error);

/* --- Memory --- */

/** `bytes` bytes of zeros that the ranks of a host share, so that collectives on them need no copies.
 * `alignment`: a power of two, 4096 at most. *memory is null if it fails. Not collective. */
int ddl_malloc(void** memory, size_t alignment, size_t bytes);
/** Frees memory from ddl_malloc; null is fine. */
int ddl_free(void* memory);

/* --- Collectives (ddl/communicator.hpp) --- */

/** Replaces every rank's `data` by the reduction of all ranks', with the same bits everywhere. */
int ddl_all_reduce(void* data, int64_t count, int type, int op);
/** IBM's name for ddl_all_reduce. */
int ddl_allreduce(void* data, int64_t count, int type, int op);
/** Replaces every rank's `data` by `root`'s. */
int ddl_broadcast(void* data, int64_t count, int type, int root);
/** Reduces ddl_size() pieces of `count` elements each in `input`; `output` gets piece number ddl_rank() of
 * the result. In place: `output` is that piece of `input`. */
int ddl_reduce_scatter(const void* input, void* output, int64_t count, int type, int op);
/** Gathers every rank's `count` elements of `input` in `output`, by rank. In place: `input` is piece number
 * ddl_rank() of `output`. */
int ddl_all_gather(const void* input, void* output, int64_t count, int type);
/** Replaces `root`'s `data` by the reduction of all ranks'. The others' stays as it was. */
int ddl_reduce(void* data, int64_t count, int type, int op, int root);
/** Returns after every rank has called it. */
int ddl_barrier(void);

/** An asynchronous collective. */
typedef struct ddl_work ddl_work;
/** Starts a ddl_all_reduce and returns at once; `data` must be left alone until ddl_wait returns. */
int ddl_all_reduce_start(void* data, int64_t count, int type, int op, ddl_work** work);
/** Starts a ddl_broadcast, likewise. */
int ddl_broadcast_start(void* data, int64_t count, int type, int root, ddl_work** work);
/** Starts a ddl_reduce_scatter, likewise. */
int ddl_reduce_scatter_start(const void* input, void* output, int64_t count, int type, int op,
                             ddl_work** work);
/** Starts a ddl_all_gather, likewise. */
int ddl_all_gather_start(const void* input, void* output, int64_t count, int type, ddl_work** work);
/** *done: 1 if it has completed, else 0. Does not block. */
int ddl_test(ddl_work* work, int* done);
/** Waits for it, returns its error code, and frees it; null is fine. */
int ddl_wait(ddl_work* work);

/* --- A model's parameters (ddl/parameter.hpp, ddl/broadcast_parameters.hpp, ddl/drift_check.hpp) --- */

/** One tensor of a model, registered once: the same array serves ddl_broadcast_parameters,
 * ddl_reducer_create, ddl_check_same and ddl_checkpoint_save. Initialise it with zeros. The memory must stay
 * where it is while a reducer uses it; the structures and names need not. */
typedef struct {
  const char* name;  /**< Null: the index in the array. */
  void* values;      /**< The parameter. May be null where only the gradient is used. */
  int64_t count;     /**< Elements of `values`, and of `gradient`. */
  int type;          /**< Of `values`. */
  void* gradient;    /**< Null: none, as for an optimiser's moments. */
  int gradient_type; /**< DDL_F32, DDL_F64, DDL_F16 or DDL_BF16; 0: `type`. */
  int64_t row_width; /**< Elements of a row, for an embedding's gradient of which a step touches few rows. */
  void* const* summands; /**< Vectors like `gradient`, one a sample or thread: ddl_reducer_ready adds them to
                            it and zeroes them. DDL_F32 or DDL_F64. */
  int summand_count;     /**< How many; 0: none. */
} ddl_parameter;

/** Gives every rank `root`'s values, and checks that all ranks have the same bits afterwards. DDL_MISMATCH
 * names the first parameter that differs in name, type or size, before any value is touched. Collective. */
int ddl_broadcast_parameters(const ddl_parameter* parameters, int count, int root);
/** Compares the bits of the values over all ranks: DDL_MISMATCH names the first parameter that differs. Reads
 * the values once. Collective. */
int ddl_check_same(const ddl_parameter* parameters, int count);

/* --- Gradients (ddl/gradient_reducer.hpp) --- */

/** What backward leaves in the gradients. Neither is 0, because there is no default. */
enum {
  DDL_GRADIENT_SUMS = 1, /**< Sums over this rank's items; their number may be given to ddl_reducer_wait. */
  DDL_GRADIENT_MEANS = 2 /**< Means over this rank's items; their number is given to ddl_reducer_begin. */
};

/** Zeros are the defaults of all but `gradients`. */
typedef struct {
  int gradients;        /**< DDL_GRADIENT_SUMS or DDL_GRADIENT_MEANS. */
  int64_t bucket_bytes; /**< At most so many bytes a bucket; 0: the library chooses. */
  int wire;             /**< Type between hosts: 0: that of the gradients, DDL_BF16 or DDL_F16. */
  int after_backward;   /**< 1: everything is reduced in ddl_reducer_wait. */
} ddl_reducer_options;

/** The result of a step's reduction, the same on all ranks. */
typedef struct {
  double weight; /**< Items of all ranks. */
  double norm;   /**< Of the mean gradients. */
  int finite;    /**< 0: some are not, and no rank should update its model. */
} ddl_step;

/** Reduces gradients while backward goes on. */
typedef struct ddl_reducer ddl_reducer;
/** For the gradients of those parameters that have one. Other calls name a gradient by its parameter's index
 * in the array. Collective. */
int ddl_reducer_create(const ddl_parameter* parameters, int count, const ddl_reducer_options* options,
                       ddl_reducer** reducer);
/** Starts a step over `weight` items. May be left out where ddl_reducer_wait gets the weight. */
int ddl_reducer_begin(ddl_reducer* reducer, double weight);
/** Gradient `index` is final on this rank for this step, and may be reduced. Any thread. */
int ddl_reducer_ready(ddl_reducer* reducer, int index);
/** The same for a gradient with `row_width`, of which only these rows hold anything but zeros. */
int ddl_reducer_ready_rows(ddl_reducer* reducer, int index, const int32_t* rows, int64_t count);
/** Gradient `index` gets no value on this rank in this step. Any thread. */
int ddl_reducer_absent(ddl_reducer* reducer, int index);
/** The weight was given to ddl_reducer_begin. */
#define DDL_GIVEN (-1.0)
/** Ends the step: the gradients become means over all ranks' items. `weight`: this rank's number of items, or
 * DDL_GIVEN. `step` may be null. Collective. */
int ddl_reducer_wait(ddl_reducer* reducer, double weight, ddl_step* step);
/** Micro-batches: between ddl_reducer_no_sync(r, 1) and ddl_reducer_no_sync(r, 0), ddl_reducer_wait reduces
 * nothing. */
int ddl_reducer_no_sync(ddl_reducer* reducer, int on);
/** Of the last step: *has_value is 1 if any rank had a value for gradient `index`, else 0: it was absent on
 * all of them, and an optimiser may pass over its parameter. */
int ddl_reducer_has_gradient(ddl_reducer* reducer, int index, int* has_value);
/** Frees it; null is fine. */
int ddl_reducer_free(ddl_reducer* reducer);

/* --- Memory of CUDA devices (ddl/device.hpp, ddl/gradient_reducer.hpp) ---
 *
 * `stream`: a cudaStream_t; null is the default stream. Functions with a stream queue their work on it and
 * return without waiting for the device. One thread at a time calls; it may be any thread, whose current
 * device becomes the job's. In a build without CUDA they all return DDL_UNSUPPORTED. */

/** Makes a CUDA device this rank's for the rest of the job. `device`: CUDA's number; -1: LOCAL_RANK, or else
 * the rank's index on its host, modulo the number of devices. DDL_UNSUPPORTED if there is none. Once a job.
 * Collective. */
int ddl_device_init(int device);
/** CUDA's number of this rank's device, or -1. */
int ddl_device(void);
/** `bytes` bytes of zeros on the device that the other ranks map, so that collectives on them need no copies;
 * the same number on all ranks. Valid until ddl_finalize, which frees them. Waits for the device. Collective.
 */
int ddl_device_malloc(void** memory, size_t bytes);

/** These are ddl_all_reduce, ddl_broadcast, ddl_reduce_scatter and ddl_all_gather on memory of the device, in
 * the order of the stream. After an error on the device, the next call returns it. */
int ddl_device_all_reduce(void* data, int64_t count, int type, int op, void* stream);
int ddl_device_broadcast(void* data, int64_t count, int type, int root, void* stream);
int ddl_device_reduce_scatter(const void* input, void* output, int64_t count, int type, int op, void* stream);
int ddl_device_all_gather(const void* input, void* output, int64_t count, int type, void* stream);
/** Waits for the work on the stream, and returns the error that has occurred, if any. Streams that
 * collectives were queued on must exist until ddl_finalize. */
int ddl_device_wait(void* stream);
/** ddl_broadcast_parameters for values on the device. The bits are not compared afterwards. */
int ddl_device_broadcast_parameters(const ddl_parameter* parameters, int count, int root, void* stream);

/** ddl_reducer_create for gradients on the device; DDL_F64 and summands are refused. `micro_batches`: 1 if
 * there will be micro-batches (ddl_reducer_no_sync) of means, which take memory of the gradients' size. The
 * reducer's other functions work as for host memory: ddl_reducer_ready and ddl_reducer_ready_rows on the
 * default stream; ddl_reducer_wait is ddl_reducer_finish on it and ddl_reducer_result; the first
 * ddl_reducer_has_gradient of a step is collective. All are called by one thread at a time, whose current
 * device is the job's. */
int ddl_device_reducer_create(const ddl_parameter* parameters, int count, const ddl_reducer_options* options,
                              int micro_batches, ddl_reducer** reducer);
/** Gradient `index` is final once the work on the stream is done. The stream must exist until
 * ddl_reducer_finish. */
int ddl_reducer_ready_on(ddl_reducer* reducer, int index, void* stream);
/** The same for a gradient with `row_width`: see ddl_reducer_ready_rows. `rows` are in host memory. */
int ddl_reducer_ready_rows_on(ddl_reducer* reducer, int index, const int32_t* rows, int64_t count,
                              void* stream);
/** Queues the end of the step: what is queued on the stream behind it sees the means. `weight` as for
 * ddl_reducer_wait. Collective. */
int ddl_reducer_finish(ddl_reducer* reducer, double weight, void* stream);
/** Waits for the step that ddl_reducer_finish has ended. Once a step, if at all. `step` may be null. */
int ddl_reducer_result(ddl_reducer* reducer, ddl_step* step);

/* --- Data and learning rate (ddl/sharded_sampler.hpp, ddl/learning_rate_scaling.hpp) --- */

/** Deals a dataset's samples to the ranks. */
typedef struct ddl_sampler ddl_sampler;
/** Deals samples 0 to size - 1 to the ranks, `batch_size` a rank and step, in an order that `seed` decides.
 * `shuffle` 0: in order of index. */
int ddl_sampler_create(int64_t size, int64_t batch_size, uint64_t seed, int shuffle, ddl_sampler** sampler);
/** This rank's *count samples of the next step; *count may be 0. Valid until the next call. */
int ddl_sampler_next(ddl_sampler* sampler, const size_t** samples, size_t* count);
/** *steps: the number of steps in every epoch. */
int ddl_sampler_steps_per_epoch(ddl_sampler* sampler, int64_t* steps);
/** Frees it; null is fine. */
int ddl_sampler_free(ddl_sampler* sampler);

/** How the learning rate grows with the number of ranks n. */
enum { DDL_SCALE_NONE = 0, DDL_SCALE_LINEAR = 1, DDL_SCALE_SQUARE_ROOT = 2 };
/** *scaled: the single worker's `rate`, times n or its root; growing from `rate` over the first `ramp_steps`
 * steps. */
int ddl_learning_rate(double rate, int rule, int64_t step, int64_t ramp_steps, double* scaled);

/* --- Checkpoints (ddl/checkpoint.hpp, ddl/training_state.hpp) --- */

/** A directory of checkpoints. */
typedef struct ddl_checkpoint ddl_checkpoint;
/** Checkpoints in `directory`, of which the newest `keep` stay (0: 5). What `reducer` has learned and where
 * `sampler` stands are saved and restored with the parameters; either may be null. `handle_signals` 1:
 * SIGUSR1 asks for a save, SIGTERM for a save and an end; see ddl_checkpoint_poll. Collective. */
int ddl_checkpoint_create(const char* directory, int keep, int handle_signals, ddl_reducer* reducer,
                          ddl_sampler* sampler, ddl_checkpoint** checkpoint);
/** Saves the values, which all ranks have alike; they are durable when it returns. Collective. */
int ddl_checkpoint_save(ddl_checkpoint* checkpoint, int64_t step, const ddl_parameter* parameters, int count);
/** Fills the values, on all ranks, from the newest undamaged checkpoint. *step: the step that it was saved
 * with, or -1 if there is none. Any number of ranks may restore. Collective. */
int ddl_checkpoint_restore(ddl_checkpoint* checkpoint, const ddl_parameter* parameters, int count,
                           int64_t* step);
/** What ddl_checkpoint_poll finds. */
enum { DDL_GO_ON = 0, DDL_SAVE = 1, DDL_SAVE_AND_END = 2 };
/** What signals have asked of any rank, the same on all. Call it once a step. Collective. */
int ddl_checkpoint_poll(ddl_checkpoint* checkpoint, int* request);
/** Frees it; null is fine. */
int ddl_checkpoint_free(ddl_checkpoint* checkpoint);

/* --- Other --- */

/** Begins work for rank 0 alone: `if (ddl_root_begin("log")) { ... } ddl_root_end(NULL);`. Returns 1 on rank
 * 0, else 0. Collective. */
int ddl_root_begin(const char* name);
/** Ends it: the other ranks wait here, however long rank 0 takes. `problem`: null, or what went wrong on rank
 * 0; the call then fails on all ranks with it. Collective. */
int ddl_root_end(const char* problem);

/** Names what this thread does until ddl_scope_end, for the timeline (DDL_TIMELINE); scopes nest. Costs next
 * to nothing without a timeline. */
int ddl_scope_begin(const char* name);
/** Ends the innermost scope of this thread. */
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
