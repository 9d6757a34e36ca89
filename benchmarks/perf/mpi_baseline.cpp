#include <fmt/format.h>
#include <mpi.h>

#include <limits>

#include "ddl/error.hpp"
#include "perf/baseline.hpp"

namespace perf {

using ddl::DataType;
using ddl::ReduceOp;
using ddl::topology::Collective;

namespace {

void require(int status, const char* what) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(status, text, &length);
  throw ddl::Error(ddl::ErrorCode::transport, fmt::format("--baseline mpi: {} failed: {}", what, text));
}

/// MPI's type; MPI_DATATYPE_NULL for 16-bit floats, which MPI cannot reduce.
MPI_Datatype mpi_type(DataType type) noexcept {
  switch (type) {
    case DataType::u8:
      return MPI_UINT8_T;
    case DataType::i32:
      return MPI_INT32_T;
    case DataType::i64:
      return MPI_INT64_T;
    case DataType::f32:
      return MPI_FLOAT;
    case DataType::f64:
      return MPI_DOUBLE;
    default:
      return MPI_DATATYPE_NULL;
  }
}

MPI_Op mpi_op(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::min:
      return MPI_MIN;
    case ReduceOp::max:
      return MPI_MAX;
    case ReduceOp::prod:
      return MPI_PROD;
    default:
      return MPI_SUM;
  }
}

class MpiBaseline : public Baseline {
 public:
  MpiBaseline() {
    require(MPI_Comm_dup(MPI_COMM_WORLD, &communicator_), "MPI_Comm_dup");
    require(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    require(MPI_Comm_rank(communicator_, &rank_), "MPI_Comm_rank");
  }
  MpiBaseline(const MpiBaseline&) = delete;
  MpiBaseline& operator=(const MpiBaseline&) = delete;
  ~MpiBaseline() override { MPI_Comm_free(&communicator_); }

  [[nodiscard]] bool can_run(const Call& call) const override {
    return call.count <= std::numeric_limits<int>::max() &&
           (!has_op(call.collective) || mpi_type(call.type) != MPI_DATATYPE_NULL);
  }

  void run(const Call& call) override {
    const int count = static_cast<int>(call.count);
    const MPI_Datatype known = mpi_type(call.type);
    const MPI_Datatype type = known != MPI_DATATYPE_NULL ? known : MPI_UINT16_T;  // for moving elements
    const MPI_Op op = mpi_op(call.op);
    const void* input = call.in_place ? MPI_IN_PLACE : static_cast<const void*>(call.input);
    switch (call.collective) {
      case Collective::all_reduce:
        return require(MPI_Allreduce(input, call.output, count, type, op, communicator_), "MPI_Allreduce");
      case Collective::reduce_scatter: {
        // MPI's in place differs: the whole input is in the output's memory.
        void* output = call.in_place ? const_cast<std::byte*>(call.input) : call.output;
        return require(MPI_Reduce_scatter_block(input, output, count, type, op, communicator_),
                       "MPI_Reduce_scatter_block");
      }
      case Collective::all_gather:
        return require(MPI_Allgather(input, count, type, call.output, count, type, communicator_),
                       "MPI_Allgather");
      case Collective::broadcast: {
        // MPI_Bcast is always in place.
        void* data = rank_ == call.root ? const_cast<std::byte*>(call.input) : call.output;
        return require(MPI_Bcast(data, count, type, call.root, communicator_), "MPI_Bcast");
      }
      case Collective::reduce: {
        const void* from = rank_ == call.root ? input : static_cast<const void*>(call.input);
        return require(MPI_Reduce(from, call.output, count, type, op, call.root, communicator_),
                       "MPI_Reduce");
      }
      case Collective::barrier:
        return require(MPI_Barrier(communicator_), "MPI_Barrier");
    }
  }
  void meet(ddl::Communicator&) override { require(MPI_Barrier(communicator_), "MPI_Barrier"); }

 private:
  MPI_Comm communicator_ = MPI_COMM_NULL;
  int rank_ = 0;
};

}  // namespace

std::unique_ptr<Baseline> make_mpi_baseline() {
  int is_initialized = 0;
  MPI_Initialized(&is_initialized);
  if (is_initialized == 0) {
    throw ddl::Error(ddl::ErrorCode::invalid_argument,
                     "--baseline mpi: the program was started without MPI; start it with mpirun -n RANKS")
        .as_agreed();
  }
  return std::make_unique<MpiBaseline>();
}

}  // namespace perf
