#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "collectives/watch/watch.hpp"

namespace ddl::collectives {
namespace {

struct Seat : WatchedRank {
  bool left = false;

  [[nodiscard]] bool is_inside() const {
    if (recorder == nullptr || has_stopped || left) return false;
    return std::ranges::any_of(recorder->records(), [](const FlightRecord& record) {
      return record.state == FlightRecord::State::begun;
    });
  }
};

/// State that the ranks share.
struct Board {
  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<bool> failed = false;
  std::optional<JobFailure> failure;
  std::vector<Seat> seats;
};

class ThreadWatch final : public Watch {
 public:
  ThreadWatch(std::shared_ptr<Board> board, std::size_t rank) : board_(std::move(board)), rank_(rank) {}

  void attach(const FlightRecorder& recorder, std::function<void()> on_failure) override {
    const std::lock_guard lock(board_->mutex);
    seat().attach(recorder, std::move(on_failure));
    if (board_->failure) seat().on_failure();
  }
  void detach() override {
    const std::lock_guard lock(board_->mutex);
    seat().detach();
    board_->changed.notify_all();
  }

  [[nodiscard]] bool failed() const noexcept override {
    return board_->failed.load(std::memory_order_acquire);
  }
  [[nodiscard]] JobFailure failure() const override {
    const std::lock_guard lock(board_->mutex);
    return board_->failure.value_or(JobFailure{});
  }
  void announce(const JobFailure& failure) override {
    const std::lock_guard lock(board_->mutex);
    if (board_->failure) return;
    board_->failure = failure;
    board_->failed.store(true, std::memory_order_release);
    for (const Seat& each : board_->seats) {
      if (each.on_failure) each.on_failure();
    }
  }
  void stopped(const std::string& waits_for) override {
    const std::lock_guard lock(board_->mutex);
    seat().has_stopped = true;
    seat().waits_for = waits_for;
    board_->changed.notify_all();
  }

  [[nodiscard]] ExitReport report() override {
    std::unique_lock lock(board_->mutex);
    board_->changed.wait_for(lock, time_to_stop, [&] {
      return std::ranges::none_of(board_->seats, [](const Seat& each) { return each.is_inside(); });
    });
    ExitReport result{board_->failure.value_or(JobFailure{}), {}, {}};
    for (const Seat& each : board_->seats) {
      const auto rank = static_cast<int>(result.ranks.size());
      result.ranks.push_back(each.report(rank, getpid(), result.failure));
      if (each.left) result.ranks.back().life = RankReport::Life::left;
    }
    find_differences(result);
    return result;
  }

  std::string set_scope(std::string scope) override {
    const std::lock_guard lock(board_->mutex);
    if (seat().has_stopped) return scope;  // reports show the scope at the time of the failure
    return std::exchange(seat().scope, std::move(scope));
  }
  void leave() noexcept override {
    const std::lock_guard lock(board_->mutex);
    seat().left = true;
    board_->changed.notify_all();
  }

 private:
  [[nodiscard]] Seat& seat() noexcept { return board_->seats[rank_]; }

  const std::shared_ptr<Board> board_;
  const std::size_t rank_;
};

}  // namespace

RankReport WatchedRank::report(int rank, std::int64_t pid, const JobFailure& failure) const {
  RankReport report{rank, host, pid, RankReport::Life::answers, scope, {}, {}, {}, waits_for};
  describe_calls(report, calls(), failure);
  return report;
}

std::vector<std::shared_ptr<Watch>> thread_watches(const std::vector<std::string>& hosts) {
  const auto board = std::make_shared<Board>();
  for (const std::string& host : hosts) board->seats.push_back({{.host = host}});
  std::vector<std::shared_ptr<Watch>> watches;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    watches.push_back(std::make_shared<ThreadWatch>(board, rank));
  }
  return watches;
}

}  // namespace ddl::collectives
