#include "ddl/mpi_interposer/tally.hpp"

#include <fmt/format.h>

namespace ddl::mpi {
namespace {

const char* text_of(PassedOn reason) noexcept {
  switch (reason) {
    case PassedOn::communicator:
      return "a communicator that is not of several processes of MPI_COMM_WORLD";
    case PassedOn::not_open:
      return "a communicator on which there has been no blocking call";
    case PassedOn::type_or_operation:
      return "a type or operation that only MPI has";
    case PassedOn::counts:
      return "counts that differ much from rank to rank";
    case PassedOn::slower:
      return "MPI is faster at this size (DDL_MPI_SERVE=all: serve them, too)";
    case PassedOn::no_thread:
      return "no UCX, and so no thread that would go on with it";
    case PassedOn::arguments:
      return "arguments that MPI is to judge";
  }
  return "";
}

}  // namespace

const char* to_string(Function function) noexcept {
  switch (function) {
    case Function::allreduce:
      return "MPI_Allreduce";
    case Function::bcast:
      return "MPI_Bcast";
    case Function::reduce_scatter:
      return "MPI_Reduce_scatter";
    case Function::reduce_scatter_block:
      return "MPI_Reduce_scatter_block";
    case Function::allgather:
      return "MPI_Allgather";
    case Function::iallreduce:
      return "MPI_Iallreduce";
    case Function::ibcast:
      return "MPI_Ibcast";
    case Function::ireduce_scatter:
      return "MPI_Ireduce_scatter";
    case Function::ireduce_scatter_block:
      return "MPI_Ireduce_scatter_block";
    case Function::iallgather:
      return "MPI_Iallgather";
  }
  return "";
}

void Tally::served(Function function, std::size_t bytes) noexcept {
  Counts& counts = counts_[static_cast<std::size_t>(function)];
  counts.calls.fetch_add(1, std::memory_order_relaxed);
  counts.bytes.fetch_add(bytes, std::memory_order_relaxed);
}

void Tally::passed_on(Function function, PassedOn reason, Log& log) {
  std::atomic<std::uint64_t>& count =
      counts_[static_cast<std::size_t>(function)].passed_on[static_cast<std::size_t>(reason)];
  if (count.fetch_add(1, std::memory_order_relaxed) != 0) return;
  log.debug(fmt::format("{} is left to MPI: {}", to_string(function), text_of(reason)));
}

void Tally::print(Log& log) const {
  for (std::size_t i = 0; i < functions; ++i) {
    const Counts& counts = counts_[i];
    std::string left;
    for (std::size_t reason = 0; reason < reasons; ++reason) {
      const std::uint64_t calls = counts.passed_on[reason].load(std::memory_order_relaxed);
      if (calls != 0)
        left += fmt::format("; {} left to MPI: {}", calls, text_of(static_cast<PassedOn>(reason)));
    }
    const std::uint64_t calls = counts.calls.load(std::memory_order_relaxed);
    if (calls == 0 && left.empty()) continue;
    log.info(fmt::format("{}: {} served, {} bytes{}", to_string(static_cast<Function>(i)), calls,
                         counts.bytes.load(std::memory_order_relaxed), left));
  }
}

}  // namespace ddl::mpi
