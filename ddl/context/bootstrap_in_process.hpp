#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/system/bootstrap.hpp"
#include "collectives/transports/shared_memory/host_memory.hpp"

namespace ddl {

/// What the threads of an in-process job share.
class InProcessJob {
 public:
  explicit InProcessJob(int ranks);

  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  /// Member i is rank i.
  [[nodiscard]] const std::shared_ptr<collectives::HostMemory>& memory() const noexcept { return memory_; }
  std::vector<std::string> all_gather(int rank, std::string_view bytes);
  /// A rank gave up during start-up: the others' `all_gather` throws `peer_failed`.
  void give_up(int rank);

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
