#include "ddl/bootstrap_mpi.hpp"

#include <fmt/format.h>
#include <mpi.h>

#include <array>
#include <cstdlib>
#include <limits>

#include "collectives/network/mpi_network.hpp"
#include "ddl/error.hpp"

namespace ddl {
namespace {

void check(int result, const char* call) {
  if (result == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(result, text.data(), &length);
  throw Error(ErrorCode::transport,
              fmt::format("{} failed: {}", call, std::string(text.data(), static_cast<std::size_t>(length))));
}

/// Settings of Open MPI for the process that is about to call MPI_Init; what the user has set stays.
void quieten_open_mpi() {
  constexpr int keep = 0;
  setenv("OMPI_MCA_mpi_warn_on_fork", "0", keep);
  setenv("OMPI_MCA_btl_base_warn_component_unused", "0", keep);
  // Containers forbid reading another process's memory; Open MPI complains about that at start-up.
  setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", keep);
}

bool initialized() {
  int flag = 0;
  MPI_Initialized(&flag);
  return flag != 0;
}

bool finalized() {
  int flag = 0;
  MPI_Finalized(&flag);
  return flag != 0;
}

}  // namespace

struct MpiBootstrap::Handles {
  MPI_Comm communicator = MPI_COMM_NULL;
};

bool MpiBootstrap::is_present() {
  return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("PMIX_RANK") != nullptr ||
         initialized();
}

MpiBootstrap::MpiBootstrap() : handles_(std::make_unique<Handles>()) {
  if (finalized()) {
    throw Error(
        ErrorCode::transport,
        "MPI has been finalized already: a process can join an MPI job only once, so keep one Context");
  }
  if (!initialized()) {
    quieten_open_mpi();
    int provided = 0;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
    called_init_ = true;
  }
  check(MPI_Comm_dup(MPI_COMM_WORLD, &handles_->communicator), "MPI_Comm_dup");
  check(MPI_Comm_set_errhandler(handles_->communicator, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_rank(handles_->communicator, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(handles_->communicator, &size_), "MPI_Comm_size");
}

MpiBootstrap::~MpiBootstrap() {
  if (abandoned_ || finalized()) return;
  MPI_Comm_free(&handles_->communicator);
  if (called_init_) MPI_Finalize();
}

std::vector<std::string> MpiBootstrap::all_gather(std::string_view bytes) {
  const auto ranks = static_cast<std::size_t>(size_);
  if (bytes.size() > static_cast<std::size_t>(std::numeric_limits<int>::max()) / ranks) {
    throw Error(ErrorCode::internal, fmt::format("a start-up message of {} bytes is too long", bytes.size()));
  }
  const int length = static_cast<int>(bytes.size());
  std::vector<int> lengths(ranks);
  check(MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, handles_->communicator),
        "MPI_Allgather");
  std::vector<int> offsets(ranks);
  int total = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    offsets[r] = total;
    total += lengths[r];
  }
  std::string all(static_cast<std::size_t>(total), '\0');
  check(MPI_Allgatherv(bytes.data(), length, MPI_BYTE, all.data(), lengths.data(), offsets.data(), MPI_BYTE,
                       handles_->communicator),
        "MPI_Allgatherv");
  std::vector<std::string> result;
  result.reserve(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    result.push_back(all.substr(static_cast<std::size_t>(offsets[r]), static_cast<std::size_t>(lengths[r])));
  }
  return result;
}

void MpiBootstrap::abort(int status) noexcept { MPI_Abort(handles_->communicator, status); }

std::unique_ptr<collectives::Network> MpiBootstrap::make_mpi_network() {
  return std::make_unique<collectives::MpiNetwork>(handles_->communicator);
}

}  // namespace ddl
