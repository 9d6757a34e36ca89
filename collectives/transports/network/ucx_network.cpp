#include "collectives/transports/network/ucx_network.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <ucp/api/ucp.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <sstream>
#include <utility>

#include "collectives/system/descriptors.hpp"
#include "collectives/transports/network/message_tags.hpp"
#include "ddl/topology/as_index.hpp"
#include "topology/refuse.hpp"

namespace ddl::collectives {
namespace {

constexpr int most_rounds_to_drain = 1000;

[[noreturn]] void refuse(const char* what, ucs_status_t status) {
  fail_with(ErrorCode::transport, "UCX: {} failed: {}", what, ucs_status_string(status));
}

void check(ucs_status_t status, const char* what) {
  if (status != UCS_OK) refuse(what, status);
}

bool set_by_user(const std::string& name) { return std::getenv(("UCX_" + name).c_str()) != nullptr; }

/// The devices in UCX_NET_DEVICES, or else those in `settings`; empty if unknown.
std::vector<std::string> used_devices(const UcxSettings& settings) {
  const char* const text = std::getenv("UCX_NET_DEVICES");
  if (text == nullptr) return settings.devices;
  std::vector<std::string> devices;
  std::istringstream names(text);
  for (std::string name; std::getline(names, name, ',');) devices.push_back(name);
  return devices == std::vector<std::string>{"all"} ? settings.devices : devices;
}

bool is_rdma(const std::string& device) { return device.find(':') != device.npos; }

/// The network's name in logs.
std::string describe(const std::vector<std::string>& devices) {
  for (const char* variable : {"UCX_TLS", "UCX_NET_DEVICES"}) {
    if (const char* value = std::getenv(variable)) return fmt::format("ucx ({}={})", variable, value);
  }
  if (devices.empty()) return "ucx";
  const bool rdma = std::any_of(devices.begin(), devices.end(), is_rdma);
  return fmt::format("ucx ({}{})", rdma ? "" : "tcp ", fmt::join(devices, " "));
}

/// Calls visit(socket, events) for the sockets that an epoll descriptor watches, directly or through another
/// one, and the events that it watches them for.
template <typename Visit>
void visit_sockets(int epoll, const Visit& visit) {
  std::ifstream watched(fmt::format("/proc/self/fdinfo/{}", epoll));
  for (std::string word; watched >> word;) {
    int descriptor = -1, type = 0;
    std::uint32_t events = 0;
    if (word != "tfd:" || !(watched >> descriptor >> word >> std::hex >> events >> std::dec)) continue;
    socklen_t size = sizeof(type);
    if (getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size) == 0) {
      visit(descriptor, events);
    } else if (descriptor != epoll) {
      visit_sockets(descriptor, visit);
    }
  }
}

/// Shuts down UCX's TCP connections. To close an endpoint, UCX 1.13 repeats `send` until the kernel takes the
/// message: forever, if the link is cut and the socket's buffer is full.
void shut_connections_down(int event_descriptor) {
  visit_sockets(event_descriptor, [](int connection, std::uint32_t) { shutdown(connection, SHUT_RDWR); });
}

/// Whether UCX has data for a TCP connection whose buffer in the kernel is full. A flush of UCX would tell,
/// but needs the peer's answer, and UCX aborts the process (1.13, built with assertions) if it reads that
/// after it could not send to the peer, which has failed.
bool has_unsent_data(int event_descriptor) {
  bool found = false;
  visit_sockets(event_descriptor,
                [&](int, std::uint32_t events) { found = found || (events & EPOLLOUT) != 0; });
  return found;
}

class Configuration {
 public:
  Configuration() { check(ucp_config_read(nullptr, nullptr, &config_), "ucp_config_read"); }
  Configuration& operator=(Configuration&&) = delete;
  ~Configuration() { ucp_config_release(config_); }

  [[nodiscard]] const ucp_config_t* get() const { return config_; }
  void prefer(const std::string& name, const std::string& value) {
    if (!set_by_user(name)) {
      check(ucp_config_modify(config_, name.c_str(), value.c_str()), ("UCX_" + name + "=" + value).c_str());
    }
  }
  /// Up to UCX 1.13, a program can set a transport's option only by its name without the transport's prefix.
  void prefer_of_transport(const std::string& prefix, const std::string& name, const std::string& value) {
    unsigned major = 0;
    unsigned minor = 0;
    unsigned release = 0;
    ucp_get_version(&major, &minor, &release);
    const bool without_prefix = major == 1 && minor <= 13;
    if (!set_by_user(prefix + name)) prefer(without_prefix ? name : prefix + name, value);
  }

 private:
  ucp_config_t* config_ = nullptr;
};

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

  struct Failure {
    enum class Kind : std::uint8_t { none, connection, left, length, transfer };
    Kind kind = Kind::none;
    ucs_status_t status = UCS_OK;
    int peer = -1;
    MessageTag tag = {};
    std::size_t bytes = 0;
    std::size_t arrived = 0;
    bool receives = false;
  };

  int rank = 0;
  std::string name;
  std::string address;
  ucp_context_h context = nullptr;
  ucp_worker_h worker = nullptr;
  int event_descriptor = -1;

  std::vector<Peer> peers;
  std::deque<Operation> operations;
  Operation* unused = nullptr;
  std::uint64_t ended = 0;
  std::uint64_t reported = 0;
  bool some_sent = false;  // since nothing was unsent
  bool some_breaking = false;
  int failed_peer = -1;
  Failure failure;
  std::byte farewell{};

  ~State() { shut(); }

  void open(const UcxSettings& settings) {
    Configuration configuration;
    configuration.prefer("TLS", "^sm");
    if (!settings.devices.empty()) {
      configuration.prefer("NET_DEVICES", fmt::format("{}", fmt::join(settings.devices, ",")));
      if (!set_by_user("TLS")) configuration.prefer("WARN_INVALID_CONFIG", "n");  // for unusable adapters
    }
    if (const std::vector<std::string> devices = used_devices(settings); !devices.empty()) {
      if (std::none_of(devices.begin(), devices.end(), is_rdma)) {
        // Over TCP, a rendezvous for less data on a busy link costs more than the copy that it saves.
        configuration.prefer("RNDV_THRESH", "512k");
        // With the default frame of 8 KiB a message takes several frames, and links idle for a tenth of the
        // time.
        configuration.prefer_of_transport("TCP_", "TX_SEG_SIZE", "64k");
      }
    }

    ucp_params_t parameters{};
    parameters.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS |
                            UCP_PARAM_FIELD_ESTIMATED_NUM_PPN | UCP_PARAM_FIELD_NAME;
    parameters.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
    // Rings and trees have few neighbours. Given an estimate above 256, UCX does not use TCP.
    parameters.estimated_num_eps = std::min<std::size_t>(as_index(settings.ranks), 64);
    parameters.estimated_num_ppn = as_index(settings.ranks_per_host);
    parameters.name = "ddl";
    check(ucp_init(&parameters, configuration.get(), &context), "ucp_init");

    ucp_worker_params_t worker_parameters{};
    worker_parameters.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker_parameters.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    check(ucp_worker_create(context, &worker_parameters, &worker), "ucp_worker_create");
    check(ucp_worker_get_efd(worker, &event_descriptor), "ucp_worker_get_efd");

    ucp_address_t* own = nullptr;
    std::size_t length = 0;
    check(ucp_worker_get_address(worker, &own, &length), "ucp_worker_get_address");
    address.assign(reinterpret_cast<const char*>(own), length);
    ucp_worker_release_address(worker, own);
  }

  void shut() noexcept {
    // Receive the remaining messages, such as goodbyes, because UCX warns about messages that were not
    // received.
    constexpr int take_it = 1;
    const ucp_request_param_t plain{};
    ucp_tag_recv_info_t info;
    while (worker != nullptr) {
      const ucp_tag_message_h message = ucp_tag_probe_nb(worker, 0, 0, take_it, &info);
      if (message == nullptr) break;
      const ucs_status_ptr_t request = ucp_tag_msg_recv_nbx(worker, nullptr, 0, message, &plain);
      if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
    }
    if (worker != nullptr) ucp_worker_destroy(std::exchange(worker, nullptr));
    if (context != nullptr) ucp_cleanup(std::exchange(context, nullptr));
    event_descriptor = -1;
  }

  Peer& peer_for(int peer, MessageTag tag) {
    if (worker == nullptr) {
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
    drain();
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
    const ucs_status_t status = ucp_ep_create(worker, &parameters, &peer.endpoint);
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
        fail(operation, Failure::Kind::length, status, arrived);
      } else {
        fail(operation, Failure::Kind::transfer, status);
      }
      unlink(operation);
    }
    recycle(operation);
  }

  void recycle(Operation& operation) noexcept {
    operation.next = unused;
    unused = &operation;
  }

  void fail(Operation& operation, Failure::Kind kind, ucs_status_t status, std::size_t arrived = 0) noexcept {
    operation.transfer->state = Transfer::State::failed;
    if (failure.kind != Failure::Kind::none) return;
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
      ucp_request_cancel(worker, operation.request);
    }
  }

  void drain() noexcept {
    for (int round = 0; round < most_rounds_to_drain && ucp_worker_progress(worker) != 0; ++round) {
    }
  }

  /// Fails all transfers with the peer.
  void drop_operations(Peer& peer) noexcept {
    while (Operation* operation = peer.operations) {
      fail(*operation, peer.link == Link::left ? Failure::Kind::left : Failure::Kind::connection, peer.why);
      forget(*operation);
    }
  }

  [[nodiscard]] bool said_goodbye(const Peer& peer) const noexcept {
    constexpr int leave_it_there = 0;
    ucp_tag_recv_info_t info;
    return ucp_tag_probe_nb(worker, UcxTag::goodbye(rank_of(peer)), UINT64_MAX, leave_it_there, &info) !=
           nullptr;
  }

  void attend_to_broken() noexcept {
    // Process messages first: a goodbye may arrive through another connection than the one that broke.
    drain();
    some_breaking = false;
    for (Peer& peer : peers) {
      if (peer.link != Link::breaking) continue;
      peer.link = said_goodbye(peer) ? Link::left : Link::broken;
      const int number = rank_of(peer);
      const bool same_thing = failure.kind == Failure::Kind::transfer && failure.peer == number;
      if (peer.link == Link::left) {
        if (same_thing) failure.kind = Failure::Kind::left;
      } else {
        if (failed_peer < 0) failed_peer = number;
        if (same_thing || failure.kind == Failure::Kind::none) {
          failure.kind = Failure::Kind::connection;
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
      if (ucp_worker_progress(worker) != 0 || ucp_worker_arm(worker) != UCS_OK) continue;
      pollfd readable{event_descriptor, POLLIN, 0};
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
    const ucs_status_ptr_t flush = ucp_worker_flush_nbx(worker, &plain);
    bool flushed = true;
    if (UCS_PTR_IS_PTR(flush)) {
      flushed = progress_until([&] { return ucp_request_check_status(flush) != UCS_INPROGRESS; }, until);
      ucp_request_free(flush);
    }
    close(flushed);
  }

  /// `in_order`: all data of open connections has left.
  void close(bool in_order) noexcept {
    if (!in_order) shut_connections_down(event_descriptor);
    for (Peer& peer : peers) {
      while (peer.operations != nullptr) forget(*peer.operations);
      close_endpoint(peer, in_order && peer.link == Link::up ? 0 : UCP_EP_CLOSE_FLAG_FORCE);
    }
    drain();
    shut();
  }

  [[nodiscard]] int rank_of(const Peer& peer) const noexcept {
    return static_cast<int>(&peer - peers.data());
  }
};

class OpenedUcx final : public UcxNetwork {
 public:
  explicit OpenedUcx(const UcxSettings& settings) {
    if (settings.ranks > UcxTag::most_ranks) {
      fail_with(ErrorCode::unsupported, "{} ranks: UCX's tags have room for {}", settings.ranks,
                UcxTag::most_ranks);
    }
    state_.rank = settings.rank;
    state_.name = describe(settings.devices);
    state_.open(settings);
  }

  ~OpenedUcx() override {
    if (state_.worker != nullptr) state_.leave();
  }

  const std::string& address() const noexcept override { return state_.address; }

  bool carries_device_memory() const noexcept override {
    ucp_context_attr_t attributes{};
    attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
    return state_.context != nullptr && ucp_context_query(state_.context, &attributes) == UCS_OK &&
           (attributes.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) != 0;
  }

  void connect(std::vector<std::string> addresses) override {
    state_.peers.resize(addresses.size());
    for (std::size_t r = 0; r < addresses.size(); ++r) {
      state_.peers[r].state = &state_;
      state_.peers[r].address = std::move(addresses[r]);
    }
  }

  std::string name() const override { return state_.name; }

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
    const ucs_status_ptr_t request = ucp_tag_recv_nbx(state_.worker, bytes.data(), bytes.size(),
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
    if (state_.worker == nullptr) return false;
    const std::uint64_t expected = UcxTag::of(tag, peer);
    ucp_tag_recv_info_t info;
    return ucp_tag_probe_nb(state_.worker, expected, UcxTag::same_call, leave_it_there, &info) != nullptr &&
           UcxTag::is_other(info.sender_tag, expected);
  }

  bool progress() override {
    if (state_.worker == nullptr) return false;
    ucp_worker_progress(state_.worker);
    if (state_.some_breaking) state_.attend_to_broken();
    return std::exchange(state_.reported, state_.ended) != state_.ended;
  }

  bool may_hold_back() const override { return state_.worker != nullptr && state_.some_sent; }

  bool holds_back() override {
    if (may_hold_back()) state_.some_sent = has_unsent_data(state_.event_descriptor);
    return may_hold_back();
  }

  int event_descriptor() const override { return state_.event_descriptor; }

  bool arm() override {
    return state_.worker != nullptr && !state_.some_breaking && state_.reported == state_.ended &&
           ucp_worker_arm(state_.worker) == UCS_OK;
  }

  int failed_peer() const override { return state_.failed_peer; }

  std::string failure() const override {
    using Kind = State::Failure::Kind;
    const State::Failure& failure = state_.failure;
    const std::string message =
        fmt::format("message {} of call {} of communicator {}, {} bytes", failure.tag.message,
                    failure.tag.call, failure.tag.communicator, failure.bytes);
    const char* direction = failure.receives ? "from" : "to";
    switch (failure.kind) {
      case Kind::none:
        break;
      case Kind::connection:
        if (failure.status == UCS_ERR_UNREACHABLE) {
          return fmt::format("rank {} cannot be reached: no transport and network interface leads there",
                             failure.peer);
        }
        return fmt::format(
            "the connection to rank {} broke ({}): its process has died, or its host or the network "
            "has failed",
            failure.peer, ucs_status_string(failure.status));
      case Kind::left:
        return fmt::format(
            "rank {} has left the job, but there is a {} {} it: do all ranks make the same calls?",
            failure.peer, message, direction);
      case Kind::length:
        return fmt::format(
            "rank {} sent {} bytes, {}: do all ranks make the same calls with the same counts?", failure.peer,
            failure.status == UCS_OK ? fmt::format("{}", failure.arrived) : "too many",
            "expected " + message);
      case Kind::transfer:
        return fmt::format("{} {} rank {} failed: {}", message, direction, failure.peer,
                           ucs_status_string(failure.status));
    }
    return {};
  }

  void abandon() noexcept override {
    if (state_.worker != nullptr) state_.close(false);
  }

 private:
  State state_;
};

}  // namespace

std::unique_ptr<UcxNetwork> make_ucx_network(const UcxSettings& settings) {
  return std::make_unique<OpenedUcx>(settings);
}

}  // namespace ddl::collectives
