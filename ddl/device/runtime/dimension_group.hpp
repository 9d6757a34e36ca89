#pragma once

#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/device/exchange.hpp"
#include "collectives/system/bootstrap.hpp"
#include "ddl/context.hpp"
#include "ddl/context/agreement.hpp"
#include "ddl/data_type.hpp"
#include "ddl/device.hpp"
#include "ddl/error.hpp"
#include "ddl/hash.hpp"
#include "ddl/topology/plan.hpp"
#include "ddl/topology/schedule.hpp"

namespace ddl::device {

using collectives::device::CallCode;

inline bool reduces(topology::Collective collective) noexcept {
  return collective != topology::Collective::broadcast && collective != topology::Collective::all_gather &&
         collective != topology::Collective::barrier;
}

/// A call of a user's, or a part of one. Groups may keep it after the user's has returned.
struct DeviceCall {
  topology::Collective collective;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::size_t count = 0;
  DataType type = DataType::u8;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  DeviceStream stream = nullptr;
  std::optional<CallCode> part_of = {};
  /// The hash of the plan that it is of, and the plan of what the group does, which outlives the call. Null
  /// for a barrier.
  std::uint64_t plan = 0;
  const topology::Plan* steps = nullptr;
  /// What sums of f32 travel as where the plan has a wire, and what roundings leave of the input, and have
  /// left before (in the device's memory, as the input is); null: nothing is kept.
  std::optional<DataType> wire = {};
  float* residual = nullptr;
  bool is_captured = false;  ///< The stream is being captured: what is queued runs later, or often, or never.

  /// As the user's, also where parts of different calls are alike.
  [[nodiscard]] CallCode called() const noexcept {
    return part_of.value_or(CallCode{.count = count,
                                     .collective = collective,
                                     .type = type,
                                     .op = reduces(collective) ? op : ReduceOp::sum,
                                     .root = static_cast<std::uint16_t>(root)});
  }
  /// A part of it, or what is done for it.
  [[nodiscard]] DeviceCall part(topology::Collective name, const std::byte* from, std::byte* to,
                                std::size_t elements) const {
    DeviceCall made = *this;
    made.part_of = called();
    made.collective = name;
    made.input = from;
    made.output = to;
    made.count = elements;
    return made;
  }
};

/// Queues a part of a call.
using PassOn = std::function<void(const DeviceCall& part)>;

/// Pieces of `count` elements that a call is about: one for each rank, or one.
inline std::size_t pieces_of(topology::Collective collective, int ranks) noexcept {
  return topology::has_pieces(collective) ? static_cast<std::size_t>(ranks) : 1;
}

/// Whether a rank's input of a call is read, and its output is written.
inline bool reads_input(const DeviceCall& call, int rank) noexcept {
  return call.collective != topology::Collective::barrier &&
         (call.collective != topology::Collective::broadcast || rank == call.root);
}
inline bool writes_output(const DeviceCall& call, int rank) noexcept {
  return call.collective != topology::Collective::barrier &&
         (call.collective != topology::Collective::reduce || rank == call.root);
}

/// A hash of what has been mixed before and of numbers, one after the other.
template <typename... Numbers>
std::uint64_t mixed(std::uint64_t before, Numbers... numbers) noexcept {
  ((before = mix(before ^ numbers)), ...);
  return before;
}

/// As good as never the same for different calls of users.
inline std::uint64_t fingerprint_of(const DeviceCall& part) noexcept {
  const auto called = std::bit_cast<std::array<std::uint64_t, 2>>(part.called());
  // Ranks must cut a call alike, and by the same plan.
  return mixed(0, called[0], called[1], part.count, part.plan);
}

/// What has gone wrong in a group's calls.
struct GroupFailure {
  Error error;
  /// Which of the group's calls it is about, from 1 on; 0: none, or one that is captured.
  std::uint64_t call = 0;
  std::string captured = {};  ///< The captured call that it is about.
  std::size_t group = 0;      ///< Among an executor's groups.
};

/// What the members of one dimension of a plan do together on streams, or all ranks. Calls are valid, and the
/// same on all members. One thread makes them; another one may look meanwhile, and abort.
class DimensionGroup {
 public:
  DimensionGroup() = default;
  DimensionGroup(const DimensionGroup&) = delete;
  DimensionGroup& operator=(const DimensionGroup&) = delete;
  virtual ~DimensionGroup() = default;

  /// Queues the call. Throws `internal` with what CUDA, or a library, says.
  virtual void run(const DeviceCall& call) = 0;
  /// Whether calls on a stream that is being captured are right each time the graph runs.
  [[nodiscard]] virtual bool can_be_captured() const noexcept { return false; }
  /// Whether reductions of floats have the host's bits in reproducible contexts.
  [[nodiscard]] virtual bool is_reproducible() const noexcept { return false; }
  /// How many calls are over. Does not wait. Any thread.
  [[nodiscard]] virtual std::uint64_t completed() = 0;
  /// What has gone wrong so far. Does not wait. Any thread.
  [[nodiscard]] virtual std::optional<GroupFailure> failure();
  /// Any thread. Has what waits for other ranks end, and whatever is queued later do nothing.
  virtual void abort() noexcept = 0;
  /// Once all of this rank's calls are done, in order: looks for what `failure` does not know yet.
  /// Collective.
  virtual void settle() {}
  /// Before it goes, once all of this rank's calls are done: collective unless something has failed
  /// (`in_order`).
  virtual void close(bool in_order) noexcept = 0;

 protected:
  /// The call that comes after those that are over has failed. Any thread.
  void fail(const Error& error) noexcept;

 private:
  std::mutex mutex_;
  std::optional<GroupFailure> failure_;
};

/// The ranks that do something together on their devices: all of a context's, or those of a dimension of its
/// plans.
class GroupMembers {
 public:
  /// The communicator's ranks, which are some of the context's. Collective among them.
  GroupMembers(const Context& context, Communicator communicator);
  GroupMembers(const GroupMembers&) = delete;
  GroupMembers& operator=(const GroupMembers&) = delete;

  /// Of all ranks; what it agrees on, all members of all groups agree on.
  [[nodiscard]] const Context& context() const noexcept { return context_; }
  [[nodiscard]] Communicator& communicator() noexcept { return communicator_; }
  [[nodiscard]] int rank() const noexcept { return communicator_.rank(); }
  [[nodiscard]] int size() const noexcept { return communicator_.size(); }
  /// The context's rank of each member.
  [[nodiscard]] const std::vector<int>& ranks() const noexcept { return ranks_; }
  /// How long they wait for each other.
  [[nodiscard]] std::chrono::nanoseconds deadline() const { return context_.options().deadline; }
  [[nodiscard]] double deadline_seconds() const { return std::chrono::duration<double>(deadline()).count(); }

 private:
  Context context_;
  Communicator communicator_;
  std::vector<int> ranks_;
};

/// Blocks of a device that kernels which wait for other ranks may take, counted over all communicators of
/// this process: if more of them waited than fit on the device, those that they wait for could not start.
/// A half is for the exchange; the other one is for holds (see UcxGroup), a kernel of a block for each rank,
/// and for what they wait for.
class BlockBudget {
 public:
  enum class Half : std::uint8_t { exchange, holds };

  explicit BlockBudget(Half which) : half_(which) {}
  BlockBudget(const BlockBudget&) = delete;
  BlockBudget& operator=(const BlockBudget&) = delete;
  ~BlockBudget();

  /// What has been taken of the device's half. Any thread.
  [[nodiscard]] std::int64_t taken(int device) const;
  /// Takes them, until this ends, if that leaves no more than `room` of the half taken; says whether it did.
  /// Once. Any thread.
  [[nodiscard]] bool take(int device, std::int64_t blocks, std::int64_t room);

 private:
  const Half half_;
  int device_ = -1;
  std::int64_t blocks_ = 0;
};

/// A context's ranks as those who meet, for what is started beside its communicator.
class ContextBootstrap final : public collectives::Bootstrap {
 public:
  explicit ContextBootstrap(const Context& context) : context_(context) {}
  [[nodiscard]] int rank() const noexcept override { return context_.rank(); }
  [[nodiscard]] int size() const noexcept override { return context_.size(); }
  std::vector<std::string> all_gather(std::string_view bytes) override {
    return gather_texts(context_, bytes);
  }
  void abort(int) noexcept override {}

 private:
  Context context_;
};

}  // namespace ddl::device
