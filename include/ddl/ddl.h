#ifndef DDL_DDL_H
#define DDL_DDL_H

/** @file
 * The C API, for C, older C++ and other languages that can call C. Link libddl_c (-lddl_c). Names correspond
 * to those of the C++ classes, whose headers give the details: ddl_reducer is ddl::GradientReducer
 * (ddl/gradient_reducer.hpp), and so on.
 *
 * Errors: functions that return int return DDL_OK (0) or an error code; ddl_error_message then returns what
 * was found, what was expected and what to do. Exceptions are ddl_rank, ddl_size and ddl_local_rank, which
 * return a number or -1, and ddl_root_begin, which returns 0 or 1. No function ends the program, unless
 * ddl_init got "-errors abort": then an error is printed and ends the whole job, and codes need not be looked
 * at. Where rank 0 has printed a report of what each rank was doing, ddl_error_message is its first line.
 * After a collective has failed for another reason than its arguments, the job cannot continue: later calls
 * return the same error, and only ddl_finalize remains to be called.
 *
 * Collective calls: every rank makes the same ones, in the same order, with the same count, type, op and
 * root.
 *
 * Threads: any thread may call, but only one at a time; a concurrent call fails. Any number of threads may
 * call ddl_reducer_ready, ddl_reducer_ready_rows and ddl_reducer_absent concurrently, unless the gradients
 * are on a device. ddl_version, ddl_error_message and ddl_error_name may also be called at any time.
 *
 * Life time: calls before ddl_init or after ddl_finalize fail. A process can join only one job, once.
 * ddl_finalize frees handles that still exist (works, reducers, samplers, checkpoints), and then leaves the
 * device.
 *
 * Compatibility: the library's soname is libddl_c.so.MAJOR, with the first number of its version. Within a
 * major version, functions keep their names, arguments and meaning, constants their values, and
 * structures their size and layout. A function that is to be removed is deprecated for at least one minor
 * version. Version 0 may change with each minor version. */

#include <stddef.h>
#include <stdint.h>

#include "ddl/version.h"

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/** Error codes: ddl::ErrorCode, and two more. */
enum {
  DDL_OK = 0,               /**< Success. */
  DDL_INVALID_ARGUMENT = 1, /**< The caller passed a value that cannot work. */
  DDL_MISMATCH = 2,         /**< Ranks, or a file and its reader, disagree. */
  DDL_TIMEOUT = 3,          /**< A deadline passed while waiting for a rank (DDL_DEADLINE, in seconds). */
  DDL_PEER_FAILED = 4,      /**< A rank died or reported an error of its own. */
  DDL_TRANSPORT = 5,        /**< Shared memory, a socket, UCX or MPI failed. */
  DDL_IO = 6,               /**< A file or directory could not be read or written. */
  DDL_CORRUPT_DATA = 7,     /**< Input from outside is damaged. */
  DDL_UNSUPPORTED = 8,      /**< Not available in this build or on this machine. */
  DDL_INTERNAL = 9,         /**< A defect of the library; please report it. */
  DDL_NOT_INITIALIZED = 10  /**< The call came before ddl_init or after ddl_finalize. */
};

/** Types of elements: unsigned and signed integers and floats of the named width in bits. */
enum { DDL_U8 = 0, DDL_I32 = 1, DDL_I64 = 2, DDL_F32 = 3, DDL_F64 = 4, DDL_F16 = 5, DDL_BF16 = 6 };

/** Reductions: sum, average, minimum, maximum, product. Averages of integers truncate towards zero. */
enum { DDL_SUM = 0, DDL_AVG = 1, DDL_MIN = 2, DDL_MAX = 3, DDL_PROD = 4 };

/** The version of the loaded library, such as "0.1.0". The macros in ddl/version.h give the header's. */
const char* ddl_version(void);

/** Joins the job that mpirun or the variables RANK and WORLD_SIZE describe; without these, a job of this
 * process alone. `options`: null, or flags spelt as in the variable DDL_OPTIONS, such as "-mode p -dbg_level
 * 2"; they override those of the environment. One more flag is "-errors abort" (the default: "-errors
 * return"): from then on until ddl_finalize, a call that fails prints its message and ends this program and
 * the whole job, with exit status 2 for DDL_INVALID_ARGUMENT, else 1. Calls MPI_Init under mpirun if the
 * program has not. Errors as those of ddl::Context::from_environment; DDL_INVALID_ARGUMENT in a second call.
 * Collective. */
int ddl_init(const char* options);
/** The same for part of an MPI program: the ranks are those of a communicator, in their order. Other
 * processes take no part and may form a job of their own. `communicator`: the address of an MPI_Comm, which
 * is duplicated. MPI must be initialized, and must not be finalized before ddl_finalize. Collective over the
 * communicator. DDL_INVALID_ARGUMENT for MPI_COMM_NULL and intercommunicators, DDL_UNSUPPORTED in a build
 * without MPI. */
int ddl_init_mpi(const char* options, const void* communicator);
/** Leaves the job, after all other calls; returns DDL_INVALID_ARGUMENT, and prints why, if a reducer's step
 * has begun and was never waited for. Frees all handles and the memory from ddl_malloc; calls MPI_Finalize if
 * ddl_init called MPI_Init. Collective, unless an error has occurred. */
int ddl_finalize(void);
/** Tells the other ranks that this one cannot go on: their calls then fail with `reason`, which is printed,
 * and which ddl_error_message returns here. Not collective. */
int ddl_abort(const char* reason);

int ddl_rank(void);       /**< This rank's number, 0 to ddl_size() - 1; -1 without a job. */
int ddl_size(void);       /**< The number of ranks; -1 without a job. */
int ddl_local_rank(void); /**< This rank's index among the ranks of its host; -1 without a job. */

/** The message of this thread's last call that failed; empty if none has failed. Valid until the thread's
 * next call that fails. */
const char* ddl_error_message(void);
/** The name of an error code, such as "invalid_argument"; "unknown" for other numbers. */
const char* ddl_error_name(int error);

/* --- Memory --- */

/** Allocates `bytes` zeroed bytes that the ranks of a host share, so that collectives on them need no copies.
 * `alignment`: a power of two, at most 4096. *memory becomes null if the call fails. Not collective. */
int ddl_malloc(void** memory, size_t alignment, size_t bytes);
/** Frees memory from ddl_malloc; does nothing for null. */
int ddl_free(void* memory);

/* --- Collectives (ddl/communicator.hpp). `count` is in elements of `type`, `op` is one of DDL_SUM ... --- */

/** Replaces every rank's `data` by the reduction of all ranks' `data`, with the same bits on all ranks. */
int ddl_all_reduce(void* data, int64_t count, int type, int op);
/** IBM's name for ddl_all_reduce. */
int ddl_allreduce(void* data, int64_t count, int type, int op);
/** Copies `root`'s `data` into every rank's `data`. */
int ddl_broadcast(void* data, int64_t count, int type, int root);
/** `input` holds ddl_size() pieces of `count` elements. Reduces all ranks' `input` and puts piece number
 * ddl_rank() of the result into `output`. In place: `output` is that piece of `input`; the other pieces are
 * then undefined. */
int ddl_reduce_scatter(const void* input, void* output, int64_t count, int type, int op);
/** Gathers every rank's `count` elements of `input` in `output`, in rank order. In place: `input` is piece
 * number ddl_rank() of `output`. */
int ddl_all_gather(const void* input, void* output, int64_t count, int type);
/** Replaces `root`'s `data` by the reduction of all ranks' `data`; other ranks' `data` is unchanged. */
int ddl_reduce(void* data, int64_t count, int type, int op, int root);
/** Returns after every rank has called it. */
int ddl_barrier(void);

/** A handle of an asynchronous collective. */
typedef struct ddl_work ddl_work;
/** Starts a ddl_all_reduce and returns at once. The caller must leave `data` alone until ddl_wait returns.
 * *work becomes the handle, for ddl_wait; null if the call fails. */
int ddl_all_reduce_start(void* data, int64_t count, int type, int op, ddl_work** work);
/** Starts a ddl_broadcast in the same way. */
int ddl_broadcast_start(void* data, int64_t count, int type, int root, ddl_work** work);
/** Starts a ddl_reduce_scatter in the same way. */
int ddl_reduce_scatter_start(const void* input, void* output, int64_t count, int type, int op,
                             ddl_work** work);
/** Starts a ddl_all_gather in the same way. */
int ddl_all_gather_start(const void* input, void* output, int64_t count, int type, ddl_work** work);
/** Sets *done to 1 if the collective is complete, else to 0, without blocking. Returns the error that the
 * collective ended with, if any. */
int ddl_test(ddl_work* work, int* done);
/** Waits until the collective is complete, frees the handle, and returns the collective's error code. Does
 * nothing for null. */
int ddl_wait(ddl_work* work);

/* --- A model's parameters (ddl/parameter.hpp, ddl/broadcast_parameters.hpp, ddl/drift_check.hpp) --- */

/** One tensor of a model. The same array serves ddl_broadcast_parameters, ddl_reducer_create, ddl_check_same,
 * ddl_checkpoint_save and ddl_checkpoint_restore. Initialise it with zeros. Gradients and summands must stay
 * in place while a reducer uses them, or until ddl_reducer_rebind; the structures and names need not. */
typedef struct {
  const char* name;  /**< For messages and checkpoints. Null: the index in the array. */
  void* values;      /**< The parameter. May be null where only the gradient is used. */
  int64_t count;     /**< Number of elements of `values`, and of `gradient`. */
  int type;          /**< Type of `values`. */
  void* gradient;    /**< The gradient. Null: none, as for an optimiser's moments. */
  int gradient_type; /**< DDL_F32, DDL_F64, DDL_F16 or DDL_BF16; 0: `type`. */
  int64_t row_width; /**< Elements of a row, for an embedding's gradient of which a step touches few rows. */
  void* const* summands; /**< Vectors like `gradient`, one a sample or thread: ddl_reducer_ready adds them to
                            it and zeroes them, so they must stay where they are too. DDL_F32 or DDL_F64. */
  int summand_count;     /**< How many; 0: none. */
} ddl_parameter;

/** Copies `root`'s values of `count` parameters to every rank and verifies that all ranks then have the same
 * bits. DDL_MISMATCH, before any value is changed, if names, types or sizes differ; the message names the
 * first parameter that does. Collective. */
int ddl_broadcast_parameters(const ddl_parameter* parameters, int count, int root);
/** Verifies that the values of `count` parameters have the same bits on all ranks: DDL_MISMATCH, with the
 * first parameter that differs, if not. Reads the values once. Collective. */
int ddl_check_same(const ddl_parameter* parameters, int count);

/* --- Gradients (ddl/gradient_reducer.hpp) --- */

/** What backward leaves in the gradients. Neither is 0, because there is no default. */
enum {
  DDL_GRADIENT_SUMS = 1, /**< Sums over this rank's items; ddl_reducer_wait may get their number. */
  DDL_GRADIENT_MEANS = 2 /**< Means over this rank's items; ddl_reducer_begin gets their number. */
};

/** Settings of a reducer; the same on all ranks. Zeros are the defaults of all members except `gradients`. */
typedef struct {
  int gradients;        /**< DDL_GRADIENT_SUMS or DDL_GRADIENT_MEANS. */
  int64_t bucket_bytes; /**< Largest size of a bucket in bytes; 0: the library chooses. */
  int wire;             /**< Type of sums between hosts: DDL_BF16 or DDL_F16; 0: f32 (f64 gradients: f64). */
  int after_backward;   /**< 1: ddl_reducer_wait reduces everything; 0: backward overlaps with reductions. */
  int leave_sums;       /**< 1: ddl_reducer_wait leaves sums over all ranks' items, for an update that takes
                           sums. */
  int on_device;        /**< 1: the gradients are in the memory of the job's device: see ddl_device_init. */
  int micro_batches;    /**< On the device: 1 if there will be micro-batches (ddl_reducer_no_sync) of means,
                           which take memory of the gradients' size. */
  int broadcast_values; /**< 1: ddl_reducer_create first gives all ranks rank 0's values, as
                           ddl_broadcast_parameters does. */
  int narrow_sums; /**< 1: 16-bit gradients are summed in their own type, in half the memory and bytes; 0: in
                      f32. */
} ddl_reducer_options;

/** The result of a step's reduction, the same on all ranks. */
typedef struct {
  double weight; /**< Sum of all ranks' weights. */
  double norm;   /**< Euclidean norm of all mean gradients together. */
  int finite;    /**< 1 if all gradients are finite; 0: no rank should update its model. */
} ddl_step;

/** Reduces gradients while backward goes on. */
typedef struct ddl_reducer ddl_reducer;
/** Makes a reducer for the gradients of those of `count` parameters that have one. Other calls name a
 * gradient by its parameter's index in the array. A tensor that holds several layers may be registered in
 * slices, one for each layer, so that each is reduced as soon as backward leaves its layer. *reducer is null
 * if the call fails. `reducer` may be null: other calls (but for ddl_reducer_free) take a null handle for the
 * job's only reducer, so that a hook in backward needs none. Collective. */
int ddl_reducer_create(const ddl_parameter* parameters, int count, const ddl_reducer_options* options,
                       ddl_reducer** reducer);
/** Gives the reducer the addresses of gradients and summands that have moved, as vectors do that are resized:
 * the same parameters, with the same names, types and counts; the number of summands may change. What the
 * reducer has learned is kept. DDL_INVALID_ARGUMENT, and the addresses stay, for other parameters, between a
 * step's first call and its ddl_reducer_wait, and for gradients on a device. Not collective. */
int ddl_reducer_rebind(ddl_reducer* reducer, const ddl_parameter* parameters, int count);

/* The first error of ddl_reducer_begin, _ready, _ready_rows and _absent in a step is returned by the step's
 * ddl_reducer_wait or _finish too, on all ranks, so their codes may be ignored. */

/** Starts a step over `weight` items of this rank. Required for means; for sums, ddl_reducer_wait can get the
 * weight instead, on all ranks. */
int ddl_reducer_begin(ddl_reducer* reducer, double weight);
/** Reports that gradient `index` is final on this rank for this step and may be reduced. Any thread. */
int ddl_reducer_ready(ddl_reducer* reducer, int index);
/** The same for a gradient with `row_width` whose rows other than these `count` rows are zero. Any thread. */
int ddl_reducer_ready_rows(ddl_reducer* reducer, int index, const int32_t* rows, int64_t count);
/** Reports that gradient `index` has no value on this rank in this step. Any thread. */
int ddl_reducer_absent(ddl_reducer* reducer, int index);
/** The weight for ddl_reducer_wait if ddl_reducer_begin got it. */
#define DDL_GIVEN (-1.0)
/** Ends the step: the gradients become means over all ranks' items, or sums (`leave_sums`). `weight`: this
 * rank's number of items, or DDL_GIVEN. `step` may be null. Collective. */
int ddl_reducer_wait(ddl_reducer* reducer, double weight, ddl_step* step);
/** With `on` 1, starts accumulation of micro-batches: ddl_reducer_wait reduces nothing until a call with `on`
 * 0. The next ddl_reducer_wait then reduces the gradients of all micro-batches. Not collective. */
int ddl_reducer_no_sync(ddl_reducer* reducer, int on);
/** Sets *has_value to 1 if any rank had a value for gradient `index` in the last step. Else sets it to 0: an
 * optimiser may skip the parameter. */
int ddl_reducer_has_gradient(ddl_reducer* reducer, int index, int* has_value);
/** Frees the reducer, after it has waited for reductions that have been started. Does nothing for null. If
 * a step has begun and was never waited for, says so, frees the reducer, and returns DDL_INVALID_ARGUMENT. */
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

/* Reducers whose options say `on_device` refuse DDL_F64 and summands. Their functions work as for host
 * memory: ddl_reducer_ready and ddl_reducer_ready_rows on the default stream; ddl_reducer_wait is
 * ddl_reducer_finish on it and ddl_reducer_result; the first ddl_reducer_has_gradient of a step is
 * collective. All are called by one thread at a time, whose current device is the job's. */
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
/** Makes a sampler of samples 0 to size - 1, with `batch_size` samples per rank and step, in an order that
 * depends on `seed`. `shuffle` 0: in index order. The same arguments on all ranks; not collective. */
int ddl_sampler_create(int64_t size, int64_t batch_size, uint64_t seed, int shuffle, ddl_sampler** sampler);
/** Sets *samples to this rank's samples of the next step, and *count to their number, which may be 0. Valid
 * until the next call. */
int ddl_sampler_next(ddl_sampler* sampler, const size_t** samples, size_t* count);
/** Sets *steps to the number of steps per epoch. */
int ddl_sampler_steps_per_epoch(ddl_sampler* sampler, int64_t* steps);
/** Frees the sampler; does nothing for null. */
int ddl_sampler_free(ddl_sampler* sampler);

/** How the learning rate grows with the number of ranks n: not at all, times n, times sqrt(n). */
enum { DDL_SCALE_NONE = 0, DDL_SCALE_LINEAR = 1, DDL_SCALE_SQUARE_ROOT = 2 };
/** Sets *scaled to the single worker's `rate` times 1, n or sqrt(n), according to `rule`. The factor grows
 * linearly from 1 over the first `ramp_steps` steps. */
int ddl_learning_rate(double rate, int rule, int64_t step, int64_t ramp_steps, double* scaled);

/* --- Checkpoints (ddl/checkpoint.hpp, ddl/training_state.hpp) --- */

/** A directory of checkpoints. */
typedef struct ddl_checkpoint ddl_checkpoint;
/** Opens `directory` for checkpoints, of which the newest `keep` are kept (0: 5). The state of `reducer` and
 * the position of `sampler` are saved and restored with the parameters; either may be null, and both must
 * exist as long as the checkpoint is used. `handle_signals` 1: SIGUSR1 requests a save, SIGTERM a save and an
 * end; see ddl_checkpoint_poll. Collective. */
int ddl_checkpoint_create(const char* directory, int keep, int handle_signals, ddl_reducer* reducer,
                          ddl_sampler* sampler, ddl_checkpoint** checkpoint);
/** Saves the values of `count` parameters, which must be the same on all ranks, as the checkpoint of `step`.
 * It is durable on return. Collective. */
int ddl_checkpoint_save(ddl_checkpoint* checkpoint, int64_t step, const ddl_parameter* parameters, int count);
/** Fills the values of `count` parameters, on all ranks, from the newest undamaged checkpoint, which any
 * number of ranks may have saved. Sets *step to the step that it was saved with, or to -1 if there is none.
 * Collective. */
int ddl_checkpoint_restore(ddl_checkpoint* checkpoint, const ddl_parameter* parameters, int count,
                           int64_t* step);
/** The requests of ddl_checkpoint_poll: none, save and continue, save and end the program. */
enum { DDL_GO_ON = 0, DDL_SAVE = 1, DDL_SAVE_AND_END = 2 };
/** Sets *request to what signals have requested of any rank; the same on all ranks. Call it once per step.
 * Collective. */
int ddl_checkpoint_poll(ddl_checkpoint* checkpoint, int* request);
/** Frees the handle; does nothing for null. */
int ddl_checkpoint_free(ddl_checkpoint* checkpoint);

/* --- Other --- */

/** Begins work for rank 0 alone: `if (ddl_root_begin("log")) { ... } ddl_root_end(NULL);`. Returns 1 on rank
 * 0, else 0; an error also gives 0, and ddl_root_end then fails. `name`: for messages; may be null.
 * Collective. */
int ddl_root_begin(const char* name);
/** Ends the work: the other ranks wait here, without a deadline, until rank 0 arrives. `problem`: null, or
 * the error on rank 0, with which the call then fails on all ranks (DDL_IO). Collective. */
int ddl_root_end(const char* problem);

/** Begins an event `name` of this thread on the timeline (DDL_TIMELINE), until ddl_scope_end; scopes nest.
 * Costs next to nothing without a timeline. */
int ddl_scope_begin(const char* name);
/** Ends the innermost scope of this thread. One that ends after ddl_finalize is not recorded. */
int ddl_scope_end(void);

#ifdef MPI_VERSION
/** MPI_Allreduce in place, through this library; declared for programs that include mpi.h before this header.
 * Calls ddl_init with `options` if the program has not; later calls give null, an empty string or the same
 * options. DDL_UNSUPPORTED, on all ranks alike, for types and operations that the library does not support.
 * Collective over `comm`. */
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
