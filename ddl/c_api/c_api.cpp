#include <fmt/format.h>

#include <cstdint>

#include "ddl/c_api/c_job.hpp"
#include "ddl/error.hpp"

namespace {

using ddl::DataType;
using ddl::Error;
using ddl::ErrorCode;
using ddl::ReduceOp;
using ddl::c_api::guarded;
using ddl::c_api::Job;

constexpr std::size_t most_alignment = 4096;

// The C names are those of the enumerations, in their order.
constexpr int types = 7;
constexpr int ops = 5;
static_assert(DDL_U8 == static_cast<int>(DataType::u8) && DDL_I32 == static_cast<int>(DataType::i32) &&
              DDL_I64 == static_cast<int>(DataType::i64) && DDL_F32 == static_cast<int>(DataType::f32) &&
              DDL_F64 == static_cast<int>(DataType::f64) && DDL_F16 == static_cast<int>(DataType::f16) &&
              DDL_BF16 == static_cast<int>(DataType::bf16));
static_assert(DDL_SUM == static_cast<int>(ReduceOp::sum) && DDL_AVG == static_cast<int>(ReduceOp::avg) &&
              DDL_MIN == static_cast<int>(ReduceOp::min) && DDL_MAX == static_cast<int>(ReduceOp::max) &&
              DDL_PROD == static_cast<int>(ReduceOp::prod));

[[noreturn]] void refuse(const std::string& text) { throw Error(ErrorCode::invalid_argument, text); }

DataType type_of(int type) {
  if (type < 0 || type >= types) {
    refuse(fmt::format("type: found {}, expected DDL_U8 (0) to DDL_BF16 ({})", type, types - 1));
  }
  return static_cast<DataType>(type);
}

ReduceOp op_of(int op) {
  if (op < 0 || op >= ops)
    refuse(fmt::format("op: found {}, expected DDL_SUM (0) to DDL_PROD ({})", op, ops - 1));
  return static_cast<ReduceOp>(op);
}

std::size_t count_of(std::int64_t count) {
  if (count < 0) refuse(fmt::format("count: found {}, expected 0 or more", count));
  return static_cast<std::size_t>(count);
}

/// What `of` says of the job's context; -1 without one.
template <typename F>
int number(const char* function, const F& of) {
  int value = -1;
  guarded(function, [&](Job& job) { value = of(job.context()); });
  return value;
}

}  // namespace

extern "C" {

int ddl_init(const char* options) {
  return guarded("ddl_init", [&](Job& job) { job.start(options); });
}

int ddl_finalize(void) {
  return guarded("ddl_finalize", [](Job& job) { job.end(); });
}

int ddl_rank(void) {
  return number("ddl_rank", [](ddl::Context& context) { return context.rank(); });
}
int ddl_size(void) {
  return number("ddl_size", [](ddl::Context& context) { return context.size(); });
}
int ddl_local_rank(void) {
  return number("ddl_local_rank", [](ddl::Context& context) { return context.local_rank(); });
}

int ddl_malloc(void** memory, size_t alignment, size_t bytes) {
  return guarded("ddl_malloc", [&](Job& job) {
    if (memory == nullptr) refuse("memory is null; expected where the pointer is to go");
    *memory = nullptr;
    if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > most_alignment) {
      refuse(fmt::format("alignment: found {}, expected a power of two up to {}", alignment, most_alignment));
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

int ddl_allreduce(void* data, int64_t count, int type, int op) {
  return guarded("ddl_allreduce", [&](Job& job) {
    job.context().communicator().all_reduce(data, count_of(count), type_of(type), op_of(op));
  });
}

int ddl_bcast(void* data, int64_t count, int type, int root) {
  return guarded("ddl_bcast", [&](Job& job) {
    job.context().communicator().broadcast(data, data, count_of(count), type_of(type), root);
  });
}

int ddl_barrier(void) {
  return guarded("ddl_barrier", [](Job& job) { job.context().communicator().barrier(); });
}

const char* ddl_error_name(int error) {
  if (error == DDL_OK) return "ok";
  if (error == DDL_NOT_INITIALIZED) return "not_initialized";
  if (error < DDL_OK || error > DDL_NOT_INITIALIZED) return "unknown";
  return ddl::to_string(static_cast<ErrorCode>(error - 1));
}

}  // extern "C"
