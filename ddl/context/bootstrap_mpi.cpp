#include "ddl/context/bootstrap_mpi.hpp"

#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <thread>

#include "collectives/transports/network/mpi_network.hpp"
#include "ddl/error.hpp"

namespace ddl {
namespace {

void check(int result, const char* call) {
  if (result == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  PMPI_Error_string(result, text.data(), &length);
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
  PMPI_Initialized(&flag);
  return flag != 0;
}

bool finalized() {
  int flag = 0;
  PMPI_Finalized(&flag);
  return flag != 0;
}

/// Ends the process unless it goes away in time.
class InitWatchdog {
 public:
  explicit InitWatchdog(std::chrono::milliseconds deadline)
      : thread_([this, deadline] {
          std::unique_lock lock(mutex_);
          if (over_.wait_for(lock, deadline, [this] { return is_over_; })) return;
          const std::string text = fmt::format(
              "ddl: MPI_Init has not returned within {:g} s (host {}, pid {}): some process of the job has "
              "not "
              "called it, or cannot be reached. This process ends; a longer deadline: DDL_DEADLINE, in "
              "seconds\n",
              static_cast<double>(deadline.count()) / 1000, host_name(), getpid());
          static_cast<void>(!write(STDERR_FILENO, text.data(), text.size()));
          _exit(1);
        }) {}
  InitWatchdog(const InitWatchdog&) = delete;
  InitWatchdog& operator=(const InitWatchdog&) = delete;
  ~InitWatchdog() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    over_.notify_one();
    thread_.join();
  }

 private:
  static std::string host_name() {
    std::array<char, 256> name{};
    gethostname(name.data(), name.size() - 1);
    return name.data();
  }

  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace

struct MpiBootstrap::Handles {
  MPI_Comm communicator = MPI_COMM_NULL;
};

bool MpiBootstrap::is_present() {
  return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("PMIX_RANK") != nullptr ||
         initialized();
}

MpiBootstrap::MpiBootstrap(std::chrono::milliseconds deadline)
    : ProcessBootstrap(deadline), handles_(std::make_unique<Handles>()) {
  if (finalized()) {
    throw Error(
        ErrorCode::transport,
        "MPI has been finalized already: a process can join an MPI job only once, so keep one Context");
  }
  if (!initialized()) {
    quieten_open_mpi();
    const InitWatchdog watchdog(deadline);
    int provided = 0;
    check(PMPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
    called_init_ = true;
  }
  check(PMPI_Comm_dup(MPI_COMM_WORLD, &handles_->communicator), "MPI_Comm_dup");
  check(PMPI_Comm_set_errhandler(handles_->communicator, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(PMPI_Comm_rank(handles_->communicator, &rank_), "MPI_Comm_rank");
  check(PMPI_Comm_size(handles_->communicator, &size_), "MPI_Comm_size");
}

MpiBootstrap::~MpiBootstrap() {
  if (abandoned_ || finalized()) return;
  PMPI_Comm_free(&handles_->communicator);
  if (called_init_) PMPI_Finalize();
}

std::vector<std::string> MpiBootstrap::all_gather(std::string_view bytes) {
  const auto ranks = static_cast<std::size_t>(size_);
  if (bytes.size() > static_cast<std::size_t>(std::numeric_limits<int>::max()) / ranks) {
    throw Error(ErrorCode::internal, fmt::format("a start-up message of {} bytes is too long", bytes.size()));
  }
  ++exchanges_;
  const int length = static_cast<int>(bytes.size());
  std::vector<int> lengths(ranks);
  MPI_Request request = MPI_REQUEST_NULL;
  check(PMPI_Iallgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, handles_->communicator, &request),
        "MPI_Iallgather");
  await(&request, "MPI_Iallgather");
  std::vector<int> offsets(ranks);
  int total = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    offsets[r] = total;
    total += lengths[r];
  }
  std::string all(static_cast<std::size_t>(total), '\0');
  check(PMPI_Iallgatherv(bytes.data(), length, MPI_BYTE, all.data(), lengths.data(), offsets.data(), MPI_BYTE,
                         handles_->communicator, &request),
        "MPI_Iallgatherv");
  await(&request, "MPI_Iallgatherv");
  std::vector<std::string> result;
  result.reserve(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    result.push_back(all.substr(static_cast<std::size_t>(offsets[r]), static_cast<std::size_t>(lengths[r])));
  }
  return result;
}

/// What was started is left behind if it fails: nothing waits for it any more.
void MpiBootstrap::await(void* request, const char* call) {
  constexpr int looks_before_naps = 200;
  constexpr auto nap = std::chrono::microseconds(100);
  const TimePoint until = due();
  for (int looks = 0;; ++looks) {
    int over = 0;
    check(PMPI_Test(static_cast<MPI_Request*>(request), &over, MPI_STATUS_IGNORE), call);
    if (over != 0) return;
    look(until, fmt::format("exchange {} of start-up or end", exchanges_), "some rank has not come");
    if (looks < looks_before_naps) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(nap);
    }
  }
}

void MpiBootstrap::abort(int status) noexcept { PMPI_Abort(handles_->communicator, status); }

std::unique_ptr<collectives::Network> MpiBootstrap::make_mpi_network() {
  return collectives::make_mpi_network(handles_->communicator);
}

}  // namespace ddl
