#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/executor/copy_pace.hpp"
#include "collectives/executor/engine.hpp"
#include "collectives/executor/operation_state.hpp"
#include "collectives/executor/waiting.hpp"

namespace ddl::collectives {

/// Makes progress on a rank's operations. Only the thread that holds the engine's ownership token may use it,
/// except for functions that say otherwise.
class Driver {
 public:
  /// `settings` and `recorder` must outlive this, but not the networks, which must be destroyed first.
  /// `has_thread`: a thread calls `progress` now and then after calls have finished.
  Driver(const EngineSettings& settings, FlightRecorder& recorder, bool has_thread);

  /// Begins a call. `work` is null if the caller waits for `done` of the result and then gives the operation
  /// back.
  OperationState& begin(const Call& call, std::shared_ptr<WorkState> work);
  void give_back(OperationState& operation);
  /// If the call's messages are small and arrive soon, runs its program in the order of the list and returns
  /// null. Otherwise begins it like `begin`, and moves from `call`. Records the call once its first messages
  /// have left, because the peers wait for those.
  OperationState* run_small(Call& call);
  /// Records the call that `run_small` has just completed.
  void note_small(const FlightRecorder::Times& times);

  /// Does all work that is possible now. Returns false if there is none.
  bool progress();
  /// Spins, yields, and finally sleeps until something may have arrived. `beside_caller`: in the engine's own
  /// thread. Throws when a deadline has passed or a peer has failed.
  void wait(int& idle, bool beside_caller);
  [[nodiscard]] bool busy() const noexcept { return !operations_.empty() || waiting_notices_ != 0; }
  /// Whether data of finished calls may still be in this process, so that peers wait for it.
  [[nodiscard]] bool may_hold_back() const noexcept {
    return settings_.network != nullptr && settings_.network->may_hold_back();
  }
  [[nodiscard]] bool holds_back() { return settings_.network != nullptr && settings_.network->holds_back(); }

  /// Whether notices to peers are pending.
  [[nodiscard]] bool must_flush() const noexcept { return waiting_notices_ != 0; }
  /// The lowest sequence number of the communicator's calls in flight; a very large number if there are none.
  [[nodiscard]] std::uint64_t oldest_call(std::uint16_t communicator) const noexcept;

  void fail(const Error& error);

  /// Ends a `wait`. Thread-safe.
  void interrupt() noexcept;

  /// Tells the host's other ranks, and waits until those that have not left, too, have read this rank's
  /// copies. Throws `timeout` after the longest deadline of the calls that made them.
  void leave();
  /// The call and the message of the last error that was thrown.
  struct About {
    CallId call = {};
    std::string brief = {};  ///< The text for the other ranks.
  };
  [[nodiscard]] const About& about() const noexcept { return about_; }
  /// Which messages are awaited, and from whom; empty if no call is in flight.
  [[nodiscard]] std::string describe_awaited() const;
  /// Abandons the networks: nothing waits for them afterwards.
  void abandon() noexcept;

 private:
  // Calls in flight: driver.cpp.
  [[nodiscard]] OperationState* find(const MessageTag& tag) noexcept;
  OperationState& free_operation();
  void place(OperationState& operation, Call& call);
  void begin_from(OperationState& operation, std::uint32_t step);
  void set_up(OperationState& operation);
  void place_elements(OperationState& operation);
  [[nodiscard]] bool has_sent(OperationState& operation);
  static void deliver(OperationState& operation);
  void finish(OperationState& operation);
  std::shared_ptr<std::byte> shared_bytes(std::size_t bytes);
  [[nodiscard]] Network* network_of(const OperationState& operation) const noexcept;

  // Messages inside a host: notices.cpp.
  bool drain();
  bool drain(MemberLink& link);
  void take(OperationState& operation, MemberLink& link, const Notice& notice, const std::byte* parcel,
            bool may_run);
  void take_data(OperationState& operation, const Notice& notice, int member, const std::byte* parcel,
                 bool may_run);
  void check_comparison(const MemberLink& link, const Notice& notice);
  void keep_for_later(const MemberLink& link, const Notice& notice);
  void take_early(OperationState& operation);
  bool empty_outbox(MemberLink& link);
  void acknowledge(OperationState& operation, MemberLink& link, std::uint32_t message, Notice::Kind kind);
  MemberLink& link(int member) {
    const std::unique_ptr<MemberLink>& link = links_[as_index(member)];
    return link ? *link : open_link(member);
  }
  MemberLink& open_link(int member);

  // Steps of programs: steps.cpp.
  bool run_ready(OperationState& operation);
  void run(OperationState& operation, std::uint32_t index);
  void complete(OperationState& operation, std::uint32_t index);
  void post(OperationState& operation, std::uint32_t index);
  void post_now(OperationState& operation, MemberLink& link, std::uint32_t index);
  bool stage(OperationState& operation, std::uint32_t index, bool beyond_limit);
  static void deliver_sent(OperationState& operation, std::uint32_t index);
  void unstage(OperationState& operation, std::uint32_t index);
  void send_copy(MemberLink& link, const MessageTag& tag, Staging::Copy& copy, std::size_t bytes);
  [[nodiscard]] Staging::Flag* unread_flag(const Notice& notice) const noexcept;
  bool stage_more(OperationState& operation, bool beyond_limit);
  template <typename DataOf>
  int collect_sources(OperationState& operation, std::uint32_t first, std::uint32_t end,
                      const DataOf& data_of);
  void combine_sources(const OperationState& operation, std::uint32_t first,
                       std::span<std::byte* const> targets, int divisor);
  void combine(OperationState& operation, std::uint32_t first);
  [[nodiscard]] bool is_small(const Call& call) const;
  void prepare_first_send(const Call& call);
  [[nodiscard]] std::uint32_t run_in_order(OperationState& operation);
  [[nodiscard]] const std::byte* await_small(const MemberLink& peer, const MessageTag& tag, std::size_t bytes,
                                             int& idle) const;
  void release_arrival(OperationState& operation, std::uint32_t index);
  void transfer_range(OperationState& operation, std::uint32_t index);
  void round_range(const OperationState& operation, std::uint32_t index) const;
  void widen_block(OperationState& operation, std::uint32_t index, std::byte* target);
  void post_receives(OperationState& operation);
  void reduce_received(OperationState& operation, std::uint32_t index);
  bool sweep_transfers(OperationState& operation);

  // The run's record (only if `run_` is set): recording.cpp.
  void note_begun(OperationState& operation);
  void note_over(OperationState& operation, std::uint64_t ended);
  void note_failed(const OperationState& operation);
  void add_event(const Call& call, std::uint32_t plan, std::uint64_t begun, std::uint64_t ended,
                 CallFacts::Way way = CallFacts::Way::done);
  void add_phase_events(const OperationState& operation, std::uint32_t plan);

  // Waiting: waiting.cpp.
  void look_for_company() noexcept;
  [[nodiscard]] int most_yields() const noexcept;
  void sleep();
  [[nodiscard]] std::int32_t rings_needed() const;
  [[nodiscard]] Network* watched_network() const noexcept;
  [[nodiscard]] bool needs(const Network* network) const noexcept;
  void drop_notices_to_nobody();
  void check_peers();
  void look_for_others(const OperationState& operation);
  void check_deadlines();
  void compare_with_host(const OperationState& operation);
  [[nodiscard]] Clock::time_point next_deadline() const;
  void nap_until(Clock::time_point until, std::uint32_t ticket, Network* network);

  // Messages to users: report.cpp.
  [[nodiscard]] std::string describe(const Call& call) const;
  [[nodiscard]] std::string describe_plan(const Call& call) const;
  [[nodiscard]] std::string rank_and_host(int rank) const;
  [[nodiscard]] std::string describe_awaited(const OperationState& operation) const;
  using Awaited = std::function<void(int rank, std::uint32_t step, const char* what)>;
  void each_awaited(const OperationState& operation, const Awaited& visit) const;
  [[noreturn]] void throw_about(const Call& call, ErrorCode code, const std::string& text,
                                std::string brief = {});
  /// Throws `mismatch`, because `rank` called something else.
  [[noreturn]] void throw_differs(const Call& call, int rank);
  [[noreturn]] void throw_transfer_failed(const OperationState& operation, std::uint32_t index);
  [[noreturn]] void throw_timeout(const OperationState& operation);

  /// A notice that arrived before its operation began.
  struct Early {
    int member;
    Notice notice;
    std::byte* held;  // copy of the parcel; null if it has none
  };

  const EngineSettings& settings_;
  FlightRecorder& recorder_;
  RunRecorder* run_;   // null if the run is not recorded
  CallName labelled_;  // the name that `label_` stands for
  std::uint32_t label_ = 0;
  std::uint16_t track_ = 0;
  std::uint64_t busy_since_ = 0;  // in Ticks; valid while there are operations
  HostMemory* memory_;
  int self_ = Ways::no_member;
  Doorbell own_bell_{};  // used if there is no host memory
  Doorbell* bell_;
  int event_ = -1;                                  // eventfd of this rank
  FileDescriptor own_event_;                        // if there is no host memory
  std::vector<std::unique_ptr<MemberLink>> links_;  // by member; null until first used
  std::vector<MemberLink*> listened_;
  std::vector<bool> left_before_;  // by index in listened_: the peer had left before the last progress()
  std::vector<OperationState*> operations_;  // in flight, oldest first
  std::vector<std::unique_ptr<OperationState>> all_operations_;
  std::vector<OperationState*> free_operations_;
  OperationState* small_ = nullptr;  // reused by `run_small` for calls that it completes
  std::vector<Early> kept_early_;
  std::size_t core_cache_bytes_;  // of the second level
  Staging staging_;
  CopyPace copy_pace_;
  std::chrono::milliseconds staging_deadline_{0};  // of the calls that staged, the longest
  BlockPool receiving_;                            // received data before its reduction, and narrow copies
  BlockPool parcels_;
  std::size_t eager_bytes_;
  std::vector<std::byte*> targets_;
  std::vector<const std::byte*> sources_;
  std::vector<MemberLink*> senders_;  // of the messages in `sources_`, for `run_in_order`
  std::size_t waiting_notices_ = 0;   // in all outboxes
  std::size_t cache_bytes_;
  bool has_thread_;
  int spins_;  // polls before yielding: see `look_for_company`
  CoreSpreading spreading_;
  std::vector<int> cores_;  // by member
  Naps naps_ = Naps::for_own();
  Naps meanwhile_naps_ = Naps::for_others();
  std::atomic<bool> interrupted_ = false;
  About about_;
};

}  // namespace ddl::collectives
