#include "ddl/context/bootstrap_mpi.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <stop_token>

#include "collectives/transports/network/mpi_network.hpp"
#include "topology/refuse.hpp"

namespace ddl {
namespace {

using collectives::check_mpi;
using collectives::duplicate_of;

/// Silences warnings of Open MPI, before MPI_Init. Does not override the user's settings.
void quieten_open_mpi() {
  constexpr int keep = 0;
  setenv("OMPI_MCA_mpi_warn_on_fork", "0", keep);
  setenv("OMPI_MCA_btl_base_warn_component_unused", "0", keep);
  // Containers forbid reading another process's memory, about which Open MPI warns at start-up.
  setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", keep);
}

/// Calls PMPI_Initialized or PMPI_Finalized.
bool is_true(int (*call)(int*)) {
  int flag = 0;
  call(&flag);
  return flag != 0;
}

/// Ends the process, with a message, unless the returned thread is destroyed before the deadline.
std::jthread end_process_after(std::chrono::milliseconds deadline) {
  return std::jthread([deadline](const std::stop_token& over) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any().wait_for(lock, over, deadline, [] { return false; });
    if (over.stop_requested()) return;
    std::array<char, 256> host{};
    gethostname(host.data(), host.size() - 1);
    const std::string text = fmt::format(
        "ddl: MPI_Init has not returned within {:g} s (host {}, pid {}): some process of the job has not "
        "called it, or cannot be reached. This process ends; a longer deadline: DDL_DEADLINE, in seconds\n",
        static_cast<double>(deadline.count()) / 1000, host.data(), getpid());
    static_cast<void>(!write(STDERR_FILENO, text.data(), text.size()));
    _exit(1);
  });
}

}  // namespace

bool MpiBootstrap::is_present() {
  return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("PMIX_RANK") != nullptr ||
         is_true(PMPI_Initialized);
}

MpiBootstrap::MpiBootstrap(std::chrono::milliseconds deadline) : ProcessBootstrap(deadline) {
  if (is_true(PMPI_Finalized)) {
    throw Error(
        ErrorCode::transport,
        "MPI has been finalized already: a process can join an MPI job only once, so keep one Context");
  }
  if (!is_true(PMPI_Initialized)) {
    quieten_open_mpi();
    const std::jthread watchdog = end_process_after(deadline);
    int provided = 0;
    check_mpi(PMPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
    called_init_ = true;
  }
  join(MPI_COMM_WORLD);
}

MpiBootstrap::MpiBootstrap(std::chrono::milliseconds deadline, MPI_Comm communicator)
    : ProcessBootstrap(deadline) {
  if (!is_true(PMPI_Initialized) || is_true(PMPI_Finalized)) {
    throw Error(
        ErrorCode::invalid_argument,
        "a communicator was given, but MPI is not initialized, or has been finalized: expected a call "
        "between MPI_Init and MPI_Finalize, of the MPI library that this one was built with");
  }
  if (communicator == MPI_COMM_NULL) {
    throw Error(ErrorCode::invalid_argument,
                "found MPI_COMM_NULL, expected a communicator that this process is in");
  }
  int connects_groups = 0;
  check_mpi(PMPI_Comm_test_inter(communicator, &connects_groups), "MPI_Comm_test_inter");
  if (connects_groups != 0) {
    throw Error(
        ErrorCode::invalid_argument,
        "found an intercommunicator, expected an intracommunicator: merge it with MPI_Intercomm_merge");
  }
  join(communicator);
}

void MpiBootstrap::join(MPI_Comm communicator) {
  communicator_ = duplicate_of(communicator);
  check_mpi(PMPI_Comm_rank(communicator_, &rank_), "MPI_Comm_rank");
  check_mpi(PMPI_Comm_size(communicator_, &size_), "MPI_Comm_size");
}

MpiBootstrap::~MpiBootstrap() {
  if (abandoned_ || is_true(PMPI_Finalized)) return;
  PMPI_Comm_free(&communicator_);
  if (called_init_) PMPI_Finalize();
}

std::vector<std::string> MpiBootstrap::all_gather(std::string_view bytes) {
  const auto ranks = as_index(size_);
  if (bytes.size() > static_cast<std::size_t>(std::numeric_limits<int>::max()) / ranks) {
    fail_with(ErrorCode::internal, "a start-up message of {} bytes is too long", bytes.size());
  }
  ++exchanges_;
  const int length = static_cast<int>(bytes.size());
  std::vector<int> lengths(ranks);
  MPI_Request request = MPI_REQUEST_NULL;
  await(PMPI_Iallgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, communicator_, &request), request,
        "MPI_Iallgather");
  std::vector<int> offsets(ranks);
  std::exclusive_scan(lengths.begin(), lengths.end(), offsets.begin(), 0);
  std::string all(static_cast<std::size_t>(offsets.back() + lengths.back()), '\0');
  await(PMPI_Iallgatherv(bytes.data(), length, MPI_BYTE, all.data(), lengths.data(), offsets.data(), MPI_BYTE,
                         communicator_, &request),
        request, "MPI_Iallgatherv");
  std::vector<std::string> result;
  for (std::size_t r = 0; r < ranks; ++r) {
    result.push_back(all.substr(static_cast<std::size_t>(offsets[r]), static_cast<std::size_t>(lengths[r])));
  }
  return result;
}

/// Polls a request until it completes. Abandons the request if it throws.
void MpiBootstrap::await(int started, MPI_Request& request, const char* call) {
  check_mpi(started, call);
  constexpr int looks_before_naps = 200;
  constexpr auto nap = std::chrono::microseconds(100);
  const TimePoint until = due();
  for (int looks = 0;; ++looks) {
    int over = 0;
    check_mpi(PMPI_Test(&request, &over, MPI_STATUS_IGNORE), call);
    if (over != 0) return;
    look(until, fmt::format("exchange {} of start-up or end", exchanges_), "some rank has not come");
    if (looks < looks_before_naps) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(nap);
    }
  }
}

void MpiBootstrap::abort(int status) noexcept { PMPI_Abort(communicator_, status); }

std::unique_ptr<collectives::Network> MpiBootstrap::make_mpi_network() {
  return collectives::make_mpi_network(communicator_);
}

std::shared_ptr<collectives::CommunicatorImpl> subgroup_of(collectives::CommunicatorImpl& world,
                                                           MPI_Comm communicator, MPI_Comm mpi_world) {
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Group all = MPI_GROUP_NULL;
  int size = 0;
  check_mpi(PMPI_Comm_group(communicator, &group), "MPI_Comm_group");
  check_mpi(PMPI_Comm_group(mpi_world, &all), "MPI_Comm_group");
  PMPI_Group_size(group, &size);
  std::vector<int> own(static_cast<std::size_t>(size));
  std::vector<int> members(own.size());
  std::iota(own.begin(), own.end(), 0);
  const int translated = PMPI_Group_translate_ranks(group, size, own.data(), all, members.data());
  PMPI_Group_free(&group);
  PMPI_Group_free(&all);
  check_mpi(translated, "MPI_Group_translate_ranks");
  if (std::ranges::find(members, MPI_UNDEFINED) != members.end()) return nullptr;
  return world.subgroup(members, [&](std::int64_t value) {
    check_mpi(PMPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT64_T, MPI_MAX, communicator), "MPI_Allreduce");
    return value;
  });
}

}  // namespace ddl
