#include "ddl/mpi_interposer/worth.hpp"

namespace ddl::mpi {
namespace {

constexpr std::size_t kib = 1024;
constexpr std::size_t mib = 1024 * kib;

/// Inside a host. MPI's root of a broadcast does not wait for anybody; large pieces MPI copies from process
/// to process in one go.
bool is_worth_on_a_host(Function function, const CallSize& size) noexcept {
  switch (function) {
    case Function::allreduce:
      return true;
    case Function::bcast:
      return size.bytes >= 1 * mib;
    case Function::reduce_scatter:
    case Function::reduce_scatter_block:
      return size.bytes >= 4 * kib;
    case Function::allgather:
      return size.bytes >= 4 * kib && (size.ranks > 2 || size.bytes <= 64 * kib);
    default:  // to hand a call to the engine's thread, and back, takes a while
      return size.bytes >= 512 * kib;
  }
}

}  // namespace

bool is_worth_serving(Function function, const CallSize& size) noexcept {
  if (size.hosts == 1) return is_worth_on_a_host(function, size);
  switch (function) {
    case Function::allreduce:
      return true;
    case Function::bcast:
      return size.bytes >= 16 * kib;
    case Function::reduce_scatter:
    case Function::reduce_scatter_block:
    case Function::allgather:
      return size.bytes >= 256 * kib;
    default:
      return size.bytes >= 512 * kib;
  }
}

}  // namespace ddl::mpi
