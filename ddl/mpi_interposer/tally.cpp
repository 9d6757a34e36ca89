#include "ddl/mpi_interposer/tally.hpp"

#include <fmt/format.h>

#include <string>

namespace ddl::mpi {
namespace {

/// In the order of `Function`; `reason_texts` is in the order of `PassedOn`.
constexpr std::array<const char*, functions> names = {
    "MPI_Allreduce",  "MPI_Bcast",  "MPI_Reduce_scatter",  "MPI_Reduce_scatter_block",  "MPI_Allgather",
    "MPI_Iallreduce", "MPI_Ibcast", "MPI_Ireduce_scatter", "MPI_Ireduce_scatter_block", "MPI_Iallgather",
};

constexpr std::array reason_texts = {
    "a communicator with one process, or with processes outside MPI_COMM_WORLD",
    "a communicator on which there has been no blocking call",
    "a type or operation that only MPI has",
    "counts that differ much from rank to rank",
    "MPI is faster at this size (DDL_MPI_SERVE=all: serve them, too)",
    "without UCX there is no thread that progresses non-blocking calls",
    "invalid arguments, which MPI reports",
};

}  // namespace

void Tally::served(Function function, std::size_t bytes) noexcept {
  Counts& counts = counts_[static_cast<std::size_t>(function)];
  counts.calls.fetch_add(1, std::memory_order_relaxed);
  counts.bytes.fetch_add(bytes, std::memory_order_relaxed);
}

void Tally::passed_on(Function function, PassedOn reason, Log& log) {
  const auto function_index = static_cast<std::size_t>(function);
  const auto reason_index = static_cast<std::size_t>(reason);
  if (counts_[function_index].passed_on[reason_index].fetch_add(1, std::memory_order_relaxed) != 0) return;
  log.debug(fmt::format("{} is left to MPI: {}", names[function_index], reason_texts[reason_index]));
}

void Tally::print(Log& log) const {
  for (std::size_t i = 0; i < functions; ++i) {
    const Counts& counts = counts_[i];
    std::string left;
    for (std::size_t reason = 0; reason < reasons; ++reason) {
      const std::uint64_t calls = counts.passed_on[reason].load(std::memory_order_relaxed);
      if (calls != 0) left += fmt::format("; {} left to MPI: {}", calls, reason_texts[reason]);
    }
    const std::uint64_t calls = counts.calls.load(std::memory_order_relaxed);
    if (calls == 0 && left.empty()) continue;
    log.info(fmt::format("{}: {} served, {} bytes{}", names[i], calls,
                         counts.bytes.load(std::memory_order_relaxed), left));
  }
}

}  // namespace ddl::mpi
