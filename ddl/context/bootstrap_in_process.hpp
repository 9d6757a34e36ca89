#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/system/bootstrap.hpp"
#include "collectives/transports/shared_memory/host_memory.hpp"
#include "topology/refuse.hpp"

namespace ddl {

/// State that the threads of an in-process job share.
class InProcessJob {
 public:
  explicit InProcessJob(int ranks)
      : ranks_(ranks), memory_(collectives::HostMemory::in_process(ranks)), gathering_(as_index(ranks)) {}

  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  /// The host memory of all ranks; member i is rank i.
  [[nodiscard]] const std::shared_ptr<collectives::HostMemory>& memory() const noexcept { return memory_; }
  std::vector<std::string> all_gather(int rank, std::string_view bytes) {
    std::unique_lock lock(mutex_);
    gathering_[as_index(rank)] = bytes;
    if (++arrived_ == ranks_) {
      gathered_ = gathering_;
      arrived_ = 0;
      ++generation_;
      changed_.notify_all();
    } else {
      changed_.wait(lock, [&, mine = generation_] { return generation_ != mine || gave_up_ >= 0; });
    }
    if (gave_up_ < 0) return gathered_;
    fail_with(ErrorCode::peer_failed, "rank {} failed while the job was starting", gave_up_);
  }
  /// `rank` failed during start-up: makes the other ranks' `all_gather` throw `peer_failed`.
  void give_up(int rank) {
    const std::lock_guard lock(mutex_);
    if (gave_up_ < 0) gave_up_ = rank;
    changed_.notify_all();
  }

 private:
  const int ranks_;
  std::shared_ptr<collectives::HostMemory> memory_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> gathering_;
  std::vector<std::string> gathered_;
  int arrived_ = 0;
  unsigned generation_ = 0;
  int gave_up_ = -1;
};

class InProcessBootstrap final : public collectives::Bootstrap {
 public:
  InProcessBootstrap(std::shared_ptr<InProcessJob> job, int rank) : job_(std::move(job)), rank_(rank) {}

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return job_->ranks(); }
  std::vector<std::string> all_gather(std::string_view bytes) override {
    return job_->all_gather(rank_, bytes);
  }
  void abort(int) noexcept override {}

 private:
  std::shared_ptr<InProcessJob> job_;
  int rank_;
};

}  // namespace ddl
