#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "collectives/executor/engine.hpp"
#include "collectives/executor/operation_state.hpp"
#include "collectives/executor/waiting.hpp"

namespace ddl::collectives {

/// What moves a rank's operations. One thread at a time, whoever holds the engine's ownership token; what
/// other threads may call says so.
class Driver {
 public:
  /// `has_thread`: there is one that calls `progress` now and then after calls are over.
  Driver(EngineSettings settings, FlightRecorder& recorder, bool has_thread);
  ~Driver();

  [[nodiscard]] const EngineSettings& settings() const noexcept { return settings_; }

  /// Begins a call. `work` is null if the caller waits for `done` of the result, and gives it back then.
  OperationState& begin(const Call& call, std::shared_ptr<WorkState> work);
  void give_back(OperationState& operation);
  /// Begins a call as `begin` does, or, if its messages are small and nobody keeps it waiting, runs its
  /// program in the order of the list and returns null.
  /// `call` may lose its program: a copy of that would cost a small call as much as a message.
  OperationState* run_small(Call& call);
  /// That call is over.
  void note_small(const FlightRecorder::Times& times);

  /// Does what can be done now. False if that was nothing.
  bool progress();
  /// Spins, yields, and sleeps at last, until something may have come. Throws when a deadline has passed or a
  /// peer is gone.
  void wait(int& idle);
  [[nodiscard]] bool busy() const noexcept { return !operations_.empty() || waiting_notices_ != 0; }
  /// Whether what was sent by calls that are over may not have left this process yet: peers wait for it.
  [[nodiscard]] bool may_hold_back() const noexcept {
    return settings_.network != nullptr && settings_.network->may_hold_back();
  }

  /// Whether peers still have to be told something.
  [[nodiscard]] bool must_flush() const noexcept { return waiting_notices_ != 0; }
  /// The least sequence number of a communicator's calls under way; the greatest number if there are none.
  [[nodiscard]] std::uint64_t oldest_call(std::uint16_t communicator) const noexcept;

  /// Ends all operations with this error.
  void fail(const Error& error);

  /// Any thread: ends a `wait`.
  void interrupt() noexcept;

  void announce_leaving();
  /// What the last error was about.
  struct About {
    CallId call = {};
    std::string brief = {};  ///< What to tell the other ranks.
  };
  [[nodiscard]] const About& about() const noexcept { return about_; }
  /// Which messages of whom are waited for; empty if none.
  [[nodiscard]] std::string describe_awaited() const;
  /// Nothing is waited for from here on.
  void abandon() noexcept;

 private:
  // What is under way: driver.cpp.
  [[nodiscard]] OperationState* find(const MessageTag& tag) noexcept;
  OperationState& free_operation();
  void place(OperationState& operation, Call&& call);
  void begin_from(OperationState& operation, std::uint32_t step);
  void set_up(OperationState& operation);
  void place_elements(OperationState& operation);
  [[nodiscard]] bool has_flushed(OperationState& operation);
  static void deliver(const OperationState& operation);
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
    const std::unique_ptr<MemberLink>& link = links_[static_cast<std::size_t>(member)];
    return link ? *link : open_link(member);
  }
  MemberLink& open_link(int member);

  // What steps do: steps.cpp.
  bool run_ready(OperationState& operation);
  void run(OperationState& operation, std::uint32_t index);
  void complete(OperationState& operation, std::uint32_t index);
  void post(OperationState& operation, std::uint32_t index);
  void post_now(OperationState& operation, MemberLink& link, std::uint32_t index);
  bool stage(OperationState& operation, std::uint32_t index, bool beyond_limit);
  void unstage(OperationState& operation, std::uint32_t index);
  bool stage_more(OperationState& operation, bool beyond_limit);
  template <typename DataOf>
  int collect_sources(OperationState& operation, std::uint32_t first, std::uint32_t end,
                      const DataOf& data_of);
  void combine_sources(const OperationState& operation, std::uint32_t first, int divisor);
  void combine(OperationState& operation, std::uint32_t first);
  [[nodiscard]] bool is_small(const Call& call) const;
  [[nodiscard]] std::uint32_t run_in_order(OperationState& operation);
  [[nodiscard]] const std::byte* await_small(const OperationState& operation, std::uint32_t step, int& idle);
  void release_arrival(OperationState& operation, std::uint32_t index);
  void transfer_range(OperationState& operation, std::uint32_t index);
  void round_range(const OperationState& operation, std::uint32_t index) const;
  void widen_block(OperationState& operation, std::uint32_t index, std::byte* target);
  void post_receives(OperationState& operation);
  void reduce_received(OperationState& operation, std::uint32_t index);
  bool sweep_transfers(OperationState& operation);

  // The run's record, of which there may be none: recording.cpp.
  void note_begun(OperationState& operation);
  void note_over(OperationState& operation, std::uint64_t ended);
  void note_failed(const OperationState& operation);
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
  [[nodiscard]] Clock::time_point next_deadline() const;
  void nap_until(Clock::time_point until, std::uint32_t ticket, Network* network);

  // Messages for people: report.cpp.
  [[nodiscard]] std::string describe(const Call& call) const;
  [[nodiscard]] std::string describe_plan(const Call& call) const;
  [[nodiscard]] std::string rank_and_host(int rank) const;
  [[nodiscard]] std::string describe_awaited(const OperationState& operation) const;
  using Awaited = std::function<void(int rank, std::uint32_t step, const char* what)>;
  /// Visits each message that is waited for.
  void each_awaited(const OperationState& operation, const Awaited& visit) const;
  [[noreturn]] void throw_about(const Call& call, ErrorCode code, const std::string& text,
                                std::string brief = {});
  /// `rank` has called something else.
  [[noreturn]] void throw_differs(const Call& call, int rank);
  [[noreturn]] void throw_transfer_failed(const OperationState& operation, std::uint32_t index);
  [[noreturn]] void throw_timeout(const OperationState& operation);

  /// A notice that came before its operation began.
  struct Early {
    int member;
    Notice notice;
    std::byte* held;  // a parcel's copy; null: it has none
  };

  EngineSettings settings_;
  FlightRecorder& recorder_;
  RunRecorder* run_;  // null: there is none
  CallEvents events_;
  std::uint64_t busy_since_ = 0;  // Ticks; while there are operations
  HostMemory* memory_;
  int self_ = Ways::no_member;
  Doorbell own_bell_{};  // where there is no host memory
  Doorbell* bell_;
  int event_ = -1;  // eventfd of this rank
  bool owns_event_ = false;
  std::vector<std::unique_ptr<MemberLink>> links_;  // by member
  std::vector<MemberLink*> listened_;
  std::vector<bool> left_before_;            // by index in listened_: before the last look
  std::vector<OperationState*> operations_;  // under way, oldest first
  std::vector<std::unique_ptr<OperationState>> all_operations_;
  std::vector<OperationState*> free_operations_;
  OperationState* small_ = nullptr;  // of the last call that `run_small` did by itself
  std::vector<Early> kept_early_;
  BlockPool staging_;    // copies for members to read
  BlockPool receiving_;  // what comes through the network, before it is reduced
  BlockPool parcels_;
  std::size_t eager_bytes_;
  std::vector<std::byte*> targets_;
  std::vector<const std::byte*> sources_;
  std::size_t waiting_notices_ = 0;  // in outboxes
  std::size_t cache_bytes_;
  bool has_thread_;
  int spins_;  // times to look again before the core is offered to others: see `look_for_company`
  CoreSpreading spreading_;
  std::vector<int> cores_;  // by member
  Naps naps_ = Naps::for_own();
  Naps meanwhile_naps_ = Naps::for_others();
  std::atomic<bool> interrupted_ = false;
  About about_;
};

}  // namespace ddl::collectives
