#include "ddl/context/bootstrap_in_process.hpp"

#include <fmt/format.h>

#include "ddl/error.hpp"

namespace ddl {

InProcessJob::InProcessJob(int ranks)
    : ranks_(ranks),
      memory_(collectives::HostMemory::in_process(ranks)),
      gathering_(static_cast<std::size_t>(ranks)) {}

std::vector<std::string> InProcessJob::all_gather(int rank, std::string_view bytes) {
  std::unique_lock lock(mutex_);
  gathering_[static_cast<std::size_t>(rank)] = bytes;
  if (++arrived_ == ranks_) {
    gathered_ = gathering_;
    arrived_ = 0;
    ++generation_;
    changed_.notify_all();
  } else {
    changed_.wait(lock, [&, mine = generation_] { return generation_ != mine || gave_up_ >= 0; });
  }
  if (gave_up_ >= 0) {
    throw Error(ErrorCode::peer_failed, fmt::format("rank {} failed while the job was starting", gave_up_));
  }
  return gathered_;
}

void InProcessJob::give_up(int rank) {
  const std::lock_guard lock(mutex_);
  if (gave_up_ < 0) gave_up_ = rank;
  changed_.notify_all();
}

}  // namespace ddl
