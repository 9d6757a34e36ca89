#include "collectives/shared_channels.hpp"

#include <algorithm>
#include <cstring>

namespace ddl::collectives {

SharedChannels::SharedChannels(std::shared_ptr<const ChannelRegion> region, std::vector<int> members,
                               int rank)
    : region_(std::move(region)),
      members_(std::move(members)),
      index_of_(static_cast<std::size_t>(*std::max_element(members_.begin(), members_.end())) + 1, -1),
      peers_(members_.size()),
      rank_(rank),
      capacity_(region_->capacity()) {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    index_of_[static_cast<std::size_t>(members_[i])] = static_cast<int>(i);
  }
  const int self = index_of_.at(static_cast<std::size_t>(rank));
  self_ = &region_->rank(self);
  for (int i = 0; i < static_cast<int>(members_.size()); ++i) {
    Peer& peer = peers_[static_cast<std::size_t>(i)];
    peer.rank = &region_->rank(i);
    peer.out = &region_->state(self, i);
    peer.in = &region_->state(i, self);
    peer.out_data = region_->data(self, i);
    peer.in_data = region_->data(i, self);
  }
}

bool SharedChannels::reaches(int peer) const noexcept {
  const auto index = static_cast<std::size_t>(peer);
  return index < index_of_.size() && index_of_[index] >= 0;
}

SharedChannels::Peer& SharedChannels::peer_at(int peer) {
  return peers_[static_cast<std::size_t>(index_of_[static_cast<std::size_t>(peer)])];
}

std::size_t SharedChannels::write_some(int peer, std::span<const std::byte> bytes) {
  Peer& to = peer_at(peer);
  // A piece at a time, so that the reader starts on the first while the next is being copied.
  const std::size_t piece = std::min(bytes.size(), capacity_ / 4);
  std::size_t space = capacity_ - static_cast<std::size_t>(to.written - to.read_by_peer);
  if (space < piece) {
    to.read_by_peer = to.out->read.load(std::memory_order_seq_cst);
    space = capacity_ - static_cast<std::size_t>(to.written - to.read_by_peer);
  }
  const std::size_t length = std::min(piece, space);
  if (length == 0) return 0;
  const std::size_t offset = static_cast<std::size_t>(to.written) & (capacity_ - 1);
  const std::size_t first = std::min(length, capacity_ - offset);
  std::memcpy(to.out_data + offset, bytes.data(), first);
  std::memcpy(to.out_data, bytes.data() + first, length - first);
  to.written += length;
  to.out->written.store(to.written, std::memory_order_seq_cst);
  to.rank->bell.ring();
  return length;
}

std::span<const std::byte> SharedChannels::readable(int peer) {
  const Peer& from = peer_at(peer);
  const auto available =
      static_cast<std::size_t>(from.in->written.load(std::memory_order_seq_cst) - from.read);
  const std::size_t offset = static_cast<std::size_t>(from.read) & (capacity_ - 1);
  return {from.in_data + offset, std::min(available, capacity_ - offset)};
}

void SharedChannels::consume(int peer, std::size_t bytes) {
  Peer& from = peer_at(peer);
  from.read += bytes;
  from.in->read.store(from.read, std::memory_order_seq_cst);
  from.rank->bell.ring();
}

int SharedChannels::failed_rank() const {
  return static_cast<int>(region_->failed().load(std::memory_order_seq_cst)) - 1;
}

bool SharedChannels::has_left(int peer) const {
  return peers_[static_cast<std::size_t>(index_of_[static_cast<std::size_t>(peer)])].rank->left.load(
             std::memory_order_seq_cst) != 0;
}

void SharedChannels::announce_failure() {
  std::uint32_t none = 0;
  region_->failed().compare_exchange_strong(none, static_cast<std::uint32_t>(rank_) + 1,
                                            std::memory_order_seq_cst);
  wake_all();
}

void SharedChannels::announce_leaving() {
  self_->left.store(1, std::memory_order_seq_cst);
  wake_all();
}

void SharedChannels::wake_all() {
  for (const Peer& peer : peers_) peer.rank->bell.ring();
}

}  // namespace ddl::collectives
