#include <cstdint>

#include "ddl/c_api/c_job.hpp"

struct ddl_work {
  ddl::Work work;
};

namespace {

using namespace ddl;
using namespace ddl::c_api;

constexpr std::size_t most_alignment = 4096;
constexpr const char* version = DDL_C_VERSION;

// The C constants have the values of the C++ enumerators, which are cast to each other.
static_assert(DDL_U8 == static_cast<int>(DataType::u8) && DDL_I32 == static_cast<int>(DataType::i32) &&
              DDL_I64 == static_cast<int>(DataType::i64) && DDL_F32 == static_cast<int>(DataType::f32) &&
              DDL_F64 == static_cast<int>(DataType::f64) && DDL_F16 == static_cast<int>(DataType::f16) &&
              DDL_BF16 == static_cast<int>(DataType::bf16));
static_assert(DDL_SUM == static_cast<int>(ReduceOp::sum) && DDL_AVG == static_cast<int>(ReduceOp::avg) &&
              DDL_MIN == static_cast<int>(ReduceOp::min) && DDL_MAX == static_cast<int>(ReduceOp::max) &&
              DDL_PROD == static_cast<int>(ReduceOp::prod));

/// Returns `of(context)` for the job's context; -1 without a job.
template <typename F>
int number(const char* function, const F& of) {
  int value = -1;
  guarded(function, [&](Job& job) { value = of(job.context()); });
  return value;
}

/// Makes a handle of the work that `start` returns.
template <typename F>
int started(const char* function, ddl_work** work, const F& start) {
  return made(function, "work", work,
              [&](Job& job) { return job.make<ddl_work>(start(job.context().communicator())); });
}

}  // namespace

extern "C" {

int ddl_init(const char* options) {
  return guarded("ddl_init", [&](Job& job) { job.start(options); });
}

int ddl_init_mpi(const char* options, const void* communicator) {
  return guarded("ddl_init_mpi", [&](Job& job) {
    require(communicator, "communicator");
    job.start(options, communicator);
  });
}

int ddl_finalize(void) {
  return guarded("ddl_finalize", [](Job& job) { job.end(); });
}

int ddl_rank(void) {
  return number("ddl_rank", [](Context& context) { return context.rank(); });
}
int ddl_size(void) {
  return number("ddl_size", [](Context& context) { return context.size(); });
}
int ddl_local_rank(void) {
  return number("ddl_local_rank", [](Context& context) { return context.local_rank(); });
}

int ddl_malloc(void** memory, size_t alignment, size_t bytes) {
  return guarded("ddl_malloc", [&](Job& job) {
    if (memory == nullptr) refuse("memory is null; expected where the pointer is to go");
    *memory = nullptr;
    if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > most_alignment) {
      refuse("alignment: found {}, expected a power of two up to {}", alignment, most_alignment);
    }
    *memory = job.allocate(bytes, alignment);
  });
}

int ddl_free(void* memory) {
  return guarded("ddl_free", [&](Job& job) {
    if (memory == nullptr) return;
    static_cast<void>(job.context());
    if (!job.release(memory)) refuse("the memory is not from ddl_malloc, or was given back before");
  });
}

int ddl_all_reduce(void* data, int64_t count, int type, int op) {
  return guarded("ddl_all_reduce", [&](Job& job) {
    job.context().communicator().all_reduce(data, count_of(count), type_of(type), op_of(op));
  });
}
int ddl_allreduce(void* data, int64_t count, int type, int op) {
  return ddl_all_reduce(data, count, type, op);
}

int ddl_broadcast(void* data, int64_t count, int type, int root) {
  return guarded("ddl_broadcast", [&](Job& job) {
    job.context().communicator().broadcast(data, data, count_of(count), type_of(type), root);
  });
}

int ddl_reduce_scatter(const void* input, void* output, int64_t count, int type, int op) {
  return guarded("ddl_reduce_scatter", [&](Job& job) {
    job.context().communicator().reduce_scatter(input, output, count_of(count), type_of(type), op_of(op));
  });
}

int ddl_all_gather(const void* input, void* output, int64_t count, int type) {
  return guarded("ddl_all_gather", [&](Job& job) {
    job.context().communicator().all_gather(input, output, count_of(count), type_of(type));
  });
}

int ddl_reduce(void* data, int64_t count, int type, int op, int root) {
  return guarded("ddl_reduce", [&](Job& job) {
    job.context().communicator().reduce(data, data, count_of(count), type_of(type), op_of(op), root);
  });
}

int ddl_barrier(void) {
  return guarded("ddl_barrier", [](Job& job) { job.context().communicator().barrier(); });
}

int ddl_all_reduce_start(void* data, int64_t count, int type, int op, ddl_work** work) {
  return started("ddl_all_reduce_start", work, [&](Communicator& all) {
    return all.all_reduce_async(data, data, count_of(count), type_of(type), op_of(op));
  });
}

int ddl_broadcast_start(void* data, int64_t count, int type, int root, ddl_work** work) {
  return started("ddl_broadcast_start", work, [&](Communicator& all) {
    return all.broadcast_async(data, data, count_of(count), type_of(type), root);
  });
}

int ddl_reduce_scatter_start(const void* input, void* output, int64_t count, int type, int op,
                             ddl_work** work) {
  return started("ddl_reduce_scatter_start", work, [&](Communicator& all) {
    return all.reduce_scatter_async(input, output, count_of(count), type_of(type), op_of(op));
  });
}

int ddl_all_gather_start(const void* input, void* output, int64_t count, int type, ddl_work** work) {
  return started("ddl_all_gather_start", work, [&](Communicator& all) {
    return all.all_gather_async(input, output, count_of(count), type_of(type));
  });
}

int ddl_test(ddl_work* work, int* done) {
  return guarded("ddl_test", [&](Job& job) {
    require(done, "done");
    *done = job.handle(work).work.test() ? 1 : 0;
  });
}

int ddl_wait(ddl_work* work) {
  return guarded("ddl_wait", [&](Job& job) {
    if (work == nullptr) return;
    Work waited = job.handle(work).work;
    job.destroy(work);
    waited.wait();
  });
}

int ddl_abort(const char* reason) {
  return guarded("ddl_abort", [&](Job& job) {
    const char* const said = reason == nullptr ? "no reason was given" : reason;
    job.context().report(Error(ErrorCode::peer_failed, said));
    job.note_abort();
    set_message("ddl_abort", said);
  });
}

const char* ddl_version(void) { return version; }

const char* ddl_error_name(int error) {
  if (error == DDL_OK) return "ok";
  if (error == DDL_NOT_INITIALIZED) return "not_initialized";
  if (error < DDL_OK || error > DDL_NOT_INITIALIZED) return "unknown";
  return to_string(static_cast<ErrorCode>(error - 1));
}

}  // extern "C"
