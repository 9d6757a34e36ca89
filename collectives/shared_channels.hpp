#pragma once

#include <memory>
#include <vector>

#include "collectives/channel_region.hpp"
#include "collectives/transport.hpp"

namespace ddl::collectives {

/// Streams through memory shared by the ranks of a host, or by the threads of a process: a
/// single-producer single-consumer ring of bytes for each ordered pair.
class SharedChannels final : public Transport {
 public:
  /// `members[i]` is the rank (in the job) at index i of the region; `rank` is one of them.
  SharedChannels(std::shared_ptr<const ChannelRegion> region, std::vector<int> members, int rank);

  [[nodiscard]] bool reaches(int peer) const noexcept;

  std::size_t write_some(int peer, std::span<const std::byte> bytes) override;
  std::span<const std::byte> readable(int peer) override;
  void consume(int peer, std::size_t bytes) override;
  std::uint32_t prepare_wait() override { return self_->bell.prepare(); }
  void cancel_wait() override { self_->bell.cancel(); }
  void wait(std::uint32_t ticket, Clock::time_point until) override { self_->bell.sleep(ticket, until); }
  [[nodiscard]] int failed_rank() const override;
  [[nodiscard]] bool has_left(int peer) const override;
  void announce_failure() override;
  void announce_leaving() override;

 private:
  /// This rank's view of one peer; the counters that only this rank writes are kept here as well.
  struct Peer {
    RankState* rank = nullptr;
    ChannelState* out = nullptr;
    ChannelState* in = nullptr;
    std::byte* out_data = nullptr;
    const std::byte* in_data = nullptr;
    std::uint64_t written = 0;
    std::uint64_t read_by_peer = 0;
    std::uint64_t read = 0;
  };
  Peer& peer_at(int peer);
  void wake_all();

  std::shared_ptr<const ChannelRegion> region_;
  std::vector<int> members_;
  std::vector<int> index_of_;  // by rank in the job; -1: not in the region
  std::vector<Peer> peers_;    // by index in the region
  int rank_;
  RankState* self_;
  std::size_t capacity_;
};

}  // namespace ddl::collectives
