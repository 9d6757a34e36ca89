#include <fmt/format.h>

#include <array>
#include <cstdint>

#include "ddl/c_api/c_job.hpp"
#include "ddl/error.hpp"

namespace {

using ddl::DataType;
using ddl::Error;
using ddl::ErrorCode;
using ddl::ReduceOp;
using ddl::c_api::guarded;
using ddl::c_api::in_job;
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

/// -1 without a job.
template <typename F>
int number(const char* function, const F& of) {
  int value = -1;
  in_job(function, [&](ddl::Context& context) {
    value = of(context);
    return DDL_OK;
  });
  return value;
}

}  // namespace

extern "C" {

int ddl_init(const char* options) {
  return guarded("ddl_init", [&](Job& job) -> int {
    job.start(options);
    return DDL_OK;
  });
}

int ddl_finalize(void) {
  return guarded("ddl_finalize", [](Job& job) -> int {
    if (job.context() == nullptr) return ddl::c_api::not_initialized("ddl_finalize");
    job.end();
    return DDL_OK;
  });
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
  return guarded("ddl_malloc", [&](Job& job) -> int {
    if (memory == nullptr) refuse("memory is null; expected where the pointer is to go");
    *memory = nullptr;
    if (job.context() == nullptr) return ddl::c_api::not_initialized("ddl_malloc");
    if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > most_alignment) {
      refuse(fmt::format("alignment: found {}, expected a power of two up to {}", alignment, most_alignment));
    }
    *memory = job.allocate(bytes, alignment);
    return DDL_OK;
  });
}

int ddl_free(void* memory) {
  return guarded("ddl_free", [&](Job& job) -> int {
    if (memory == nullptr) return DDL_OK;
    if (job.context() == nullptr) return ddl::c_api::not_initialized("ddl_free");
    if (!job.release(memory)) refuse("the memory is not from ddl_malloc, or was given back before");
    return DDL_OK;
  });
}

int ddl_allreduce(void* data, int64_t count, int type, int op) {
  return in_job("ddl_allreduce", [&](ddl::Context& context) {
    context.communicator().all_reduce(data, count_of(count), type_of(type), op_of(op));
    return DDL_OK;
  });
}

int ddl_bcast(void* data, int64_t count, int type, int root) {
  return in_job("ddl_bcast", [&](ddl::Context& context) {
    context.communicator().broadcast(data, data, count_of(count), type_of(type), root);
    return DDL_OK;
  });
}

int ddl_barrier(void) {
  return in_job("ddl_barrier", [](ddl::Context& context) {
    context.communicator().barrier();
    return DDL_OK;
  });
}

const char* ddl_error_name(int error) {
  static constexpr std::array names = {
      "ok", "invalid_argument", "mismatch",    "timeout",  "peer_failed",    "transport",
      "io", "corrupt_data",     "unsupported", "internal", "not_initialized"};
  return error >= 0 && error < static_cast<int>(names.size()) ? names[static_cast<std::size_t>(error)]
                                                              : "unknown";
}

}  // extern "C"
