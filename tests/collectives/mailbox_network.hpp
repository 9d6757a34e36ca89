#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/transports/network/network.hpp"
#include "ddl/error.hpp"

namespace ddl::test {

using collectives::MessageTag;
using collectives::Network;
using collectives::Transfer;

/// When a send completes.
enum class SendsEnd : std::uint8_t {
  at_delivery,
  acknowledged,  ///< At the receiver's next progress after the one that completed its receive, as MPI may do.
  buffered,      ///< At once; the message leaves at the sender's third following progress, as in UCX.
};

/// Stands in for a network between ranks that are threads: copies a message when sender and receiver have
/// called.
class Mailboxes {
 public:
  explicit Mailboxes(int ranks, SendsEnd sends_end = SendsEnd::at_delivery)
      : sends_end_(sends_end), ranks_(static_cast<std::size_t>(ranks)) {
    for (Rank& rank : ranks_) rank.event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  }
  Mailboxes(const Mailboxes&) = delete;
  Mailboxes& operator=(const Mailboxes&) = delete;
  ~Mailboxes() {
    for (const Rank& rank : ranks_) close(rank.event);
  }

  std::unique_ptr<Network> open(int rank, bool wakes = true) {
    return std::make_unique<Mailbox>(*this, rank, wakes);
  }

 private:
  using Key = std::tuple<int, int, std::uint16_t, std::uint16_t, std::uint32_t>;  // from, to, tag
  struct End {
    std::byte* data;
    std::size_t bytes;
    Transfer* transfer;
  };
  struct Meeting {
    std::deque<End> sends;
    std::deque<End> receives;
    std::deque<std::vector<std::byte>> arrived;  // delivered, not received yet
  };
  struct Buffered {
    Key key;
    std::vector<std::byte> bytes;
    int rounds = 3;
  };
  struct Rank {
    std::vector<Transfer*> over;
    std::vector<std::pair<int, Transfer*>> to_acknowledge;  // with their senders
    std::deque<Buffered> buffered;
    std::uint64_t left = 0;  // buffered messages that have been delivered
    int event = -1;
  };

  class Mailbox final : public Network {
   public:
    Mailbox(Mailboxes& all, int rank, bool wakes) : all_(all), rank_(rank), wakes_(wakes) {}
    [[nodiscard]] std::string name() const override { return "mailboxes"; }
    void send(int peer, MessageTag tag, std::span<const std::byte> bytes, Transfer& transfer) override {
      if (all_.sends_end_ == SendsEnd::buffered) {
        all_.keep(rank_, peer, tag, bytes);
        transfer.state = Transfer::State::done;
        return;
      }
      transfer.state = Transfer::State::active;
      all_.add(rank_, peer, tag, true, {const_cast<std::byte*>(bytes.data()), bytes.size(), &transfer});
    }
    void receive(int peer, MessageTag tag, std::span<std::byte> bytes, Transfer& transfer) override {
      transfer.state = Transfer::State::active;
      all_.add(peer, rank_, tag, false, {bytes.data(), bytes.size(), &transfer});
    }
    bool progress() override { return all_.end_transfers(rank_); }
    [[nodiscard]] bool may_hold_back() const override { return all_.left(rank_) < all_.handed_over(rank_); }
    [[nodiscard]] int event_descriptor() const override {
      return wakes_ ? all_.ranks_[static_cast<std::size_t>(rank_)].event : -1;
    }
    bool arm() override { return wakes_ && all_.arm(rank_); }
    void abandon() noexcept override {}

   private:
    Mailboxes& all_;
    int rank_;
    bool wakes_;
  };

  void add(int from, int to, MessageTag tag, bool is_send, End end) {
    const std::lock_guard lock(mutex_);
    const Key key{from, to, tag.communicator, tag.call, tag.message};
    Meeting& meeting = meetings_[key];
    (is_send ? meeting.sends : meeting.receives).push_back(end);
    match(key);
  }
  void match(const Key& key) {
    Meeting& meeting = meetings_[key];
    const int from = std::get<0>(key);
    const int to = std::get<1>(key);
    while (!meeting.receives.empty() && (!meeting.sends.empty() || !meeting.arrived.empty())) {
      const End received = meeting.receives.front();
      meeting.receives.pop_front();
      if (!meeting.arrived.empty()) {
        deliver(received, meeting.arrived.front());
        meeting.arrived.pop_front();
      } else {
        const End sent = meeting.sends.front();
        meeting.sends.pop_front();
        deliver(received, {sent.data, sent.bytes});
        if (sends_end_ == SendsEnd::acknowledged) {
          ranks_[static_cast<std::size_t>(to)].to_acknowledge.emplace_back(from, sent.transfer);
        } else {
          end_later(from, sent.transfer);
        }
      }
      end_later(to, received.transfer);
    }
  }
  static void deliver(const End& received, std::span<const std::byte> sent) {
    if (sent.size() != received.bytes) throw Error(ErrorCode::internal, "mailboxes: lengths differ");
    std::memcpy(received.data, sent.data(), sent.size());
  }
  void keep(int from, int to, MessageTag tag, std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    ranks_[static_cast<std::size_t>(from)].buffered.push_back(
        {{from, to, tag.communicator, tag.call, tag.message}, {bytes.begin(), bytes.end()}});
  }
  std::uint64_t handed_over(int rank) {
    const std::lock_guard lock(mutex_);
    const Rank& owner = ranks_[static_cast<std::size_t>(rank)];
    return owner.left + owner.buffered.size();
  }
  std::uint64_t left(int rank) {
    const std::lock_guard lock(mutex_);
    return ranks_[static_cast<std::size_t>(rank)].left;
  }
  void end_later(int rank, Transfer* transfer) {
    Rank& owner = ranks_[static_cast<std::size_t>(rank)];
    owner.over.push_back(transfer);
    const std::uint64_t one = 1;
    static_cast<void>(!write(owner.event, &one, sizeof one));
  }
  bool end_transfers(int rank) {
    const std::lock_guard lock(mutex_);
    Rank& owner = ranks_[static_cast<std::size_t>(rank)];
    if (owner.over.empty()) {
      for (const auto& [sender, transfer] : owner.to_acknowledge) end_later(sender, transfer);
      owner.to_acknowledge.clear();
    }
    for (Buffered& message : owner.buffered) --message.rounds;
    for (; !owner.buffered.empty() && owner.buffered.front().rounds <= 0; owner.buffered.pop_front()) {
      meetings_[owner.buffered.front().key].arrived.push_back(std::move(owner.buffered.front().bytes));
      match(owner.buffered.front().key);
      ++owner.left;
    }
    for (Transfer* transfer : owner.over) transfer->state = Transfer::State::done;
    const bool any = !owner.over.empty();
    owner.over.clear();
    return any;
  }
  bool arm(int rank) {
    const std::lock_guard lock(mutex_);
    Rank& owner = ranks_[static_cast<std::size_t>(rank)];
    std::uint64_t rings = 0;
    static_cast<void>(!read(owner.event, &rings, sizeof rings));
    return owner.over.empty() && owner.to_acknowledge.empty() && owner.buffered.empty();
  }

  const SendsEnd sends_end_;
  std::mutex mutex_;
  std::map<Key, Meeting> meetings_;
  std::vector<Rank> ranks_;
};

}  // namespace ddl::test
