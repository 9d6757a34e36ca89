#pragma once

#include <memory>

#include "collectives/doorbell.hpp"
#include "collectives/shared_channels.hpp"
#include "collectives/transport.hpp"

namespace ddl::collectives {

/// Sends to each peer the best way there is: shared memory where both have opened the same segment,
/// the network otherwise.
class RoutedTransport final : public Transport {
 public:
  /// `channels` may be null (this rank shares memory with nobody); so may `network`, if the channels
  /// reach everybody.
  RoutedTransport(std::unique_ptr<SharedChannels> channels, std::unique_ptr<Transport> network);

  std::size_t write_some(int peer, std::span<const std::byte> bytes) override;
  std::span<const std::byte> readable(int peer) override;
  void consume(int peer, std::size_t bytes) override;
  bool flushed() override;
  bool use_network_for_all(bool all) override;
  std::uint32_t prepare_wait() override;
  void cancel_wait() override;
  void wait(std::uint32_t ticket, Clock::time_point until) override;
  [[nodiscard]] int failed_rank() const override;
  [[nodiscard]] bool has_left(int peer) const override;
  void announce_failure() override;
  void announce_leaving() override;

 private:
  Transport& route(int peer);

  std::unique_ptr<SharedChannels> channels_;
  std::unique_ptr<Transport> network_;
  bool network_for_all_ = false;
  bool network_used_ = false;  // since the last wait
  int naps_ = 0;               // in a row, without anything moving on the network
};

}  // namespace ddl::collectives
