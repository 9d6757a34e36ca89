#include "collectives/routed_transport.hpp"

#include <algorithm>
#include <thread>

namespace ddl::collectives {
namespace {

// The network cannot ring a doorbell, so a rank that waits for it looks again: often at first, then
// less and less, so that it leaves the core to others.
constexpr int shortest_naps = 20;
constexpr auto shortest_nap = std::chrono::microseconds(50);
constexpr auto longest_nap = std::chrono::microseconds(1000);

}  // namespace

RoutedTransport::RoutedTransport(std::unique_ptr<SharedChannels> channels, std::unique_ptr<Transport> network)
    : channels_(std::move(channels)), network_(std::move(network)) {}

Transport& RoutedTransport::route(int peer) {
  if (channels_ && channels_->reaches(peer) && !network_for_all_) return *channels_;
  network_used_ = true;
  return *network_;
}

std::size_t RoutedTransport::write_some(int peer, std::span<const std::byte> bytes) {
  const std::size_t written = route(peer).write_some(peer, bytes);
  if (written != 0) naps_ = 0;
  return written;
}
std::span<const std::byte> RoutedTransport::readable(int peer) { return route(peer).readable(peer); }
void RoutedTransport::consume(int peer, std::size_t bytes) {
  naps_ = 0;
  route(peer).consume(peer, bytes);
}

bool RoutedTransport::flushed() {
  if (!network_ || network_->flushed()) return true;
  network_used_ = true;
  return false;
}

bool RoutedTransport::use_network_for_all(bool all) {
  network_for_all_ = all && network_ != nullptr;
  return network_for_all_;
}

std::uint32_t RoutedTransport::prepare_wait() {
  network_used_ = false;
  return channels_ ? channels_->prepare_wait() : 0;
}
void RoutedTransport::cancel_wait() {
  if (channels_) channels_->cancel_wait();
}

void RoutedTransport::wait(std::uint32_t ticket, Clock::time_point until) {
  // What this rank has sent may need its help to arrive, even while it waits for a channel.
  if (network_ && !network_->flushed()) network_used_ = true;
  if (network_used_ || !channels_) {
    const auto nap = naps_ < shortest_naps
                         ? shortest_nap
                         : std::min(longest_nap, shortest_nap * (naps_ - shortest_naps + 2));
    ++naps_;
    until = std::min(until, Clock::now() + nap);
  }
  if (channels_) {
    channels_->wait(ticket, until);
  } else {
    std::this_thread::sleep_until(until);
  }
}

int RoutedTransport::failed_rank() const { return channels_ ? channels_->failed_rank() : -1; }
bool RoutedTransport::has_left(int peer) const {
  // What a peer has sent through the network may come after the news that it has left.
  return channels_ && !network_for_all_ && channels_->reaches(peer) && channels_->has_left(peer);
}
void RoutedTransport::announce_failure() {
  if (channels_) channels_->announce_failure();
}
void RoutedTransport::announce_leaving() {
  if (channels_) channels_->announce_leaving();
}

}  // namespace ddl::collectives
