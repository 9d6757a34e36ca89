#include "collectives/transports/network/ucx_network.hpp"

#include <ucp/api/ucp.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "collectives/system/descriptors.hpp"
#include "collectives/transports/network/message_tags.hpp"
#include "collectives/transports/network/ucx_failure.hpp"
#include "collectives/transports/network/ucx_worker.hpp"
#include "ddl/topology/as_index.hpp"
#include "topology/refuse.hpp"

namespace ddl::collectives {
namespace {

struct State {
  enum class Link : std::uint8_t { unused, up, breaking, broken, left };

  struct Operation {
    State* state = nullptr;
    Transfer* transfer = nullptr;  // null once it is forgotten
    void* request = nullptr;
    MessageTag tag;
    std::size_t bytes = 0;
    int peer = 0;
    bool receives = false;
    Operation* previous = nullptr;  // in the peer's list
    Operation* next = nullptr;      // in the peer's list, or in that of unused ones
  };

  struct Peer {
    State* state = nullptr;
    std::string address;
    ucp_ep_h endpoint = nullptr;
    Link link = Link::unused;
    ucs_status_t why = UCS_OK;
    Operation* operations = nullptr;
  };

  int rank = 0;
  UcxWorker worker;

  std::vector<Peer> peers;
  std::deque<Operation> operations;
  Operation* unused = nullptr;
  std::uint64_t ended = 0;
  std::uint64_t reported = 0;
  bool some_sent = false;  // since nothing was unsent
  bool some_breaking = false;
  int failed_peer = -1;
  UcxFailure failure;
  std::byte farewell{};

  explicit State(const UcxSettings& settings) : rank(settings.rank), worker(settings) {}

  Peer& peer_for(int peer, MessageTag tag) {
    if (worker.get() == nullptr) {
      throw Error(ErrorCode::transport,
                  "the network was abandoned after a failure: nothing is sent any more");
    }
    if (peer < 0 || as_index(peer) >= peers.size()) {
      fail_with(ErrorCode::internal, "a transfer with rank {}, of {} that the network is connected to", peer,
                peers.size());
    }
    if (tag.communicator >= UcxTag::communicators) {
      fail_with(ErrorCode::unsupported,
                "a message of communicator {}: UCX's tags have room for {} communicators; free those "
                "that are not used any more",
                tag.communicator, UcxTag::communicators);
    }
    return peers[as_index(peer)];
  }

  void require_connection(Peer& peer) noexcept {
    if (peer.link != Link::unused) return;
    worker.drain();
    if (said_goodbye(peer)) {
      peer.link = Link::left;
      return;
    }
    ucp_ep_params_t parameters{};
    parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                            UCP_EP_PARAM_FIELD_ERR_HANDLER;
    parameters.address = reinterpret_cast<const ucp_address_t*>(peer.address.data());
    parameters.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    parameters.err_handler.cb = [](void* arg, ucp_ep_h, ucs_status_t status) {
      auto& broken = *static_cast<Peer*>(arg);
      if (broken.link != Link::up) return;
      broken.link = Link::breaking;
      broken.why = status;
      broken.state->some_breaking = true;
    };
    parameters.err_handler.arg = &peer;
    peer.link = Link::up;
    const ucs_status_t status = ucp_ep_create(worker.get(), &parameters, &peer.endpoint);
    if (status == UCS_OK) return;
    peer.endpoint = nullptr;
    peer.link = Link::breaking;
    peer.why = status;
    some_breaking = true;
  }

  Operation& begin(Transfer& transfer, int peer, MessageTag tag, std::size_t bytes, bool receives) {
    if (unused == nullptr) unused = &operations.emplace_back();
    Operation& operation = *std::exchange(unused, unused->next);
    Operation*& first = peers[as_index(peer)].operations;
    operation = {this, &transfer, nullptr, tag, bytes, peer, receives, nullptr, first};
    if (first != nullptr) first->previous = &operation;
    first = &operation;
    transfer.state = Transfer::State::active;
    transfer.handle = &operation;
    return operation;
  }

  void unlink(Operation& operation) noexcept {
    if (operation.next != nullptr) operation.next->previous = operation.previous;
    (operation.previous != nullptr ? operation.previous->next : peers[as_index(operation.peer)].operations) =
        operation.next;
  }

  void end(Operation& operation, ucs_status_t status, std::size_t arrived) noexcept {
    if (operation.transfer != nullptr) {
      if (status == UCS_OK && arrived == operation.bytes) {
        operation.transfer->state = Transfer::State::done;
        some_sent = some_sent || !operation.receives;
      } else if (status == UCS_OK || status == UCS_ERR_MESSAGE_TRUNCATED) {
        fail(operation, UcxFailure::Kind::length, status, arrived);
      } else {
        fail(operation, UcxFailure::Kind::transfer, status);
      }
      unlink(operation);
    }
    recycle(operation);
  }

  void recycle(Operation& operation) noexcept {
    operation.next = unused;
    unused = &operation;
  }

  void fail(Operation& operation, UcxFailure::Kind kind, ucs_status_t status,
            std::size_t arrived = 0) noexcept {
    operation.transfer->state = Transfer::State::failed;
    if (failure.kind != UcxFailure::Kind::none) return;
    failure = {kind, status, operation.peer, operation.tag, operation.bytes, arrived, operation.receives};
  }

  /// Detaches the operation from its transfer, which is not accessed again. UCX may still hold a request for
  /// it.
  void forget(Operation& operation) noexcept {
    unlink(operation);
    operation.transfer = nullptr;
    if (operation.request == nullptr) {
      recycle(operation);
    } else if (operation.receives) {
      ucp_request_cancel(worker.get(), operation.request);
    }
  }

  /// Fails all transfers with the peer.
  void drop_operations(Peer& peer) noexcept {
    while (Operation* operation = peer.operations) {
      fail(*operation, peer.link == Link::left ? UcxFailure::Kind::left : UcxFailure::Kind::connection,
           peer.why);
      forget(*operation);
    }
  }

  [[nodiscard]] bool said_goodbye(const Peer& peer) const noexcept {
    constexpr int leave_it_there = 0;
    ucp_tag_recv_info_t info;
    return ucp_tag_probe_nb(worker.get(), UcxTag::goodbye(rank_of(peer)), UINT64_MAX, leave_it_there,
                            &info) != nullptr;
  }

  void attend_to_broken() noexcept {
    // Process messages first: a goodbye may arrive through another connection than the one that broke.
    worker.drain();
    some_breaking = false;
    for (Peer& peer : peers) {
      if (peer.link != Link::breaking) continue;
      peer.link = said_goodbye(peer) ? Link::left : Link::broken;
      const int number = rank_of(peer);
      const bool same_thing = failure.kind == UcxFailure::Kind::transfer && failure.peer == number;
      if (peer.link == Link::left) {
        if (same_thing) failure.kind = UcxFailure::Kind::left;
      } else {
        if (failed_peer < 0) failed_peer = number;
        if (same_thing || failure.kind == UcxFailure::Kind::none) {
          failure.kind = UcxFailure::Kind::connection;
          failure.peer = number;
          failure.status = peer.why;
        }
      }
      drop_operations(peer);
      close_endpoint(peer, UCP_EP_CLOSE_FLAG_FORCE);
    }
  }

  void close_endpoint(Peer& peer, std::uint32_t flags) noexcept {
    if (peer.endpoint == nullptr) return;
    ucp_request_param_t parameters{};
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    parameters.flags = flags;
    const ucs_status_ptr_t request = ucp_ep_close_nbx(std::exchange(peer.endpoint, nullptr), &parameters);
    if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
  }

  /// Returns false at a timeout.
  template <typename IsOver>
  bool progress_until(const IsOver& is_over, Clock::time_point until) noexcept {
    bool over = false;
    while (!(over = is_over()) && Clock::now() < until) {
      if (ucp_worker_progress(worker.get()) != 0 || ucp_worker_arm(worker.get()) != UCS_OK) continue;
      pollfd readable{worker.event_descriptor(), POLLIN, 0};
      poll_until({&readable, 1}, std::min(until, Clock::now() + std::chrono::milliseconds(10)));
    }
    return over;
  }

  void leave() noexcept {
    const auto until = Clock::now() + longest_goodbye;
    const ucp_request_param_t plain{};
    for (Peer& peer : peers) {
      if (peer.link != Link::up) continue;
      const ucs_status_ptr_t request =
          ucp_tag_send_nbx(peer.endpoint, &farewell, sizeof(farewell), UcxTag::goodbye(rank), &plain);
      if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
    }
    const ucs_status_ptr_t flush = ucp_worker_flush_nbx(worker.get(), &plain);
    bool flushed = true;
    if (UCS_PTR_IS_PTR(flush)) {
      flushed = progress_until([&] { return ucp_request_check_status(flush) != UCS_INPROGRESS; }, until);
      ucp_request_free(flush);
    }
    close(flushed);
  }

  /// `in_order`: all data of open connections has left.
  void close(bool in_order) noexcept {
    if (!in_order) worker.shut_connections_down();
    for (Peer& peer : peers) {
      while (peer.operations != nullptr) forget(*peer.operations);
      close_endpoint(peer, in_order && peer.link == Link::up ? 0 : UCP_EP_CLOSE_FLAG_FORCE);
    }
    worker.drain();
    worker.shut();
  }

  [[nodiscard]] int rank_of(const Peer& peer) const noexcept {
    return static_cast<int>(&peer - peers.data());
  }
};

class OpenedUcx final : public UcxNetwork {
 public:
  explicit OpenedUcx(const UcxSettings& settings) : name_(name_of(settings)), state_(settings) {}

  ~OpenedUcx() override {
    if (state_.worker.get() != nullptr) state_.leave();
  }

  const std::string& address() const noexcept override { return state_.worker.address(); }

  bool carries_device_memory() const noexcept override { return state_.worker.carries_device_memory(); }

  void connect(std::vector<std::string> addresses) override {
    state_.peers.resize(addresses.size());
    for (std::size_t r = 0; r < addresses.size(); ++r) {
      state_.peers[r].state = &state_;
      state_.peers[r].address = std::move(addresses[r]);
    }
  }

  std::string name() const override { return name_; }

  int communicators() const override { return UcxTag::communicators; }

  void send(int peer, MessageTag tag, std::span<const std::byte> bytes, Transfer& transfer) override {
    State::Peer& to = state_.peer_for(peer, tag);
    state_.require_connection(to);
    State::Operation& operation = state_.begin(transfer, peer, tag, bytes.size(), false);
    if (to.link != State::Link::up) {
      if (state_.some_breaking) state_.attend_to_broken();
      state_.drop_operations(to);
      return;
    }
    ucp_request_param_t parameters{};
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    parameters.cb.send = [](void* request, ucs_status_t status, void* user_data) {
      auto& over = *static_cast<State::Operation*>(user_data);
      if (over.transfer != nullptr) ++over.state->ended;
      over.state->end(over, status, over.bytes);
      ucp_request_free(request);
    };
    parameters.user_data = &operation;
    const ucs_status_ptr_t request =
        ucp_tag_send_nbx(to.endpoint, bytes.data(), bytes.size(), UcxTag::of(tag, state_.rank), &parameters);
    if (UCS_PTR_IS_PTR(request)) {
      operation.request = request;
    } else {
      state_.end(operation, UCS_PTR_STATUS(request), bytes.size());
    }
  }

  void receive(int peer, MessageTag tag, std::span<std::byte> bytes, Transfer& transfer) override {
    State::Peer& from = state_.peer_for(peer, tag);
    State::Operation& operation = state_.begin(transfer, peer, tag, bytes.size(), true);
    const std::uint64_t ended = state_.ended;
    ucp_request_param_t parameters{};
    // Before version 1.16, UCX reports the length of a received message only to the callback.
    parameters.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    parameters.cb.recv = [](void* request, ucs_status_t status, const ucp_tag_recv_info_t* arrived,
                            void* user_data) {
      auto& over = *static_cast<State::Operation*>(user_data);
      if (over.transfer != nullptr) ++over.state->ended;
      over.state->end(over, status, arrived->length);
      ucp_request_free(request);
    };
    parameters.user_data = &operation;
    const ucs_status_ptr_t request = ucp_tag_recv_nbx(state_.worker.get(), bytes.data(), bytes.size(),
                                                      UcxTag::of(tag, peer), UINT64_MAX, &parameters);
    if (!UCS_PTR_IS_PTR(request) && !transfer.over()) state_.end(operation, UCS_PTR_STATUS(request), 0);
    if (transfer.over()) {
      state_.ended = ended;
      return;
    }
    operation.request = request;
    // Without a connection, the death of a rank that only sends to this one would not be noticed.
    state_.require_connection(from);
    if (from.link == State::Link::broken || from.link == State::Link::left) state_.drop_operations(from);
  }

  bool has_other(int peer, MessageTag tag) const override {
    constexpr int leave_it_there = 0;
    if (state_.worker.get() == nullptr) return false;
    const std::uint64_t expected = UcxTag::of(tag, peer);
    ucp_tag_recv_info_t info;
    return ucp_tag_probe_nb(state_.worker.get(), expected, UcxTag::same_call, leave_it_there, &info) !=
               nullptr &&
           UcxTag::is_other(info.sender_tag, expected);
  }

  bool progress() override {
    if (state_.worker.get() == nullptr) return false;
    ucp_worker_progress(state_.worker.get());
    if (state_.some_breaking) state_.attend_to_broken();
    return std::exchange(state_.reported, state_.ended) != state_.ended;
  }

  bool may_hold_back() const override { return state_.worker.get() != nullptr && state_.some_sent; }

  bool holds_back() override {
    if (may_hold_back()) state_.some_sent = state_.worker.has_unsent_data();
    return may_hold_back();
  }

  int event_descriptor() const override { return state_.worker.event_descriptor(); }

  bool arm() override {
    return state_.worker.get() != nullptr && !state_.some_breaking && state_.reported == state_.ended &&
           ucp_worker_arm(state_.worker.get()) == UCS_OK;
  }

  int failed_peer() const override { return state_.failed_peer; }

  std::string failure() const override { return state_.failure.text(); }

  void abandon() noexcept override {
    if (state_.worker.get() != nullptr) state_.close(false);
  }

 private:
  std::string name_;
  State state_;
};

}  // namespace

std::unique_ptr<UcxNetwork> make_ucx_network(const UcxSettings& settings) {
  if (settings.ranks > UcxTag::most_ranks) {
    fail_with(ErrorCode::unsupported, "{} ranks: UCX's tags have room for {}", settings.ranks,
              UcxTag::most_ranks);
  }
  return std::make_unique<OpenedUcx>(settings);
}

}  // namespace ddl::collectives
