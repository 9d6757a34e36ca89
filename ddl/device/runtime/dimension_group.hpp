#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
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

/// A user's call, or a part of one. Groups may keep it after the user's call has returned.
struct DeviceCall {
  topology::Collective collective;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::size_t count = 0;
  DataType type = DataType::u8;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  DeviceStream stream = nullptr;
  std::optional<CallCode> part_of = {};  ///< The user's call, if this is a part.
  /// The hash of the call's plan, and the group's own plan, which must outlive the call. Null for a barrier.
  std::uint64_t plan = 0;
  const topology::Plan* steps = nullptr;
  /// The 16-bit type in which sums of f32 travel where the plan has a wire type. `residual`, device memory of
  /// the input's size, keeps rounding errors for the next call's input; null drops them.
  std::optional<DataType> wire = {};
  float* residual = nullptr;
  bool is_captured =
      false;  ///< The stream is being captured: queued work may run later, repeatedly or never.

  /// Identifies the user's call, so that equal parts of different calls are told apart.
  [[nodiscard]] CallCode called() const noexcept {
    return part_of.value_or(CallCode{.count = count,
                                     .collective = collective,
                                     .type = type,
                                     .op = reduces(collective) ? op : ReduceOp::sum,
                                     .root = static_cast<std::uint16_t>(root)});
  }
  /// A part of this call, or a collective that it needs.
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

/// The number of pieces of `count` elements in the larger of a call's buffers: `ranks` or one.
inline std::size_t pieces_of(topology::Collective collective, int ranks) noexcept {
  return topology::has_pieces(collective) ? static_cast<std::size_t>(ranks) : 1;
}

/// The pieces in each buffer of a call of `ranks` members, and the elements of a piece that memory of `room`
/// bytes holds for all of them at a time: whole lines, at least one.
struct StagedPieces {
  std::size_t in, out, most;
};
inline StagedPieces staged_pieces(const DeviceCall& call, int ranks, std::size_t room) noexcept {
  constexpr std::size_t line_bytes = 128;
  const std::size_t pieces = pieces_of(call.collective, ranks);
  const std::size_t element = size_of(call.type);
  const std::size_t line = line_bytes / element;
  return {call.collective == topology::Collective::reduce_scatter ? pieces : 1,
          call.collective == topology::Collective::all_gather ? pieces : 1,
          std::max(room / (pieces * element) / line * line, line)};
}

/// Whether the call reads the rank's input, or writes its output.
inline bool reads_input(const DeviceCall& call, int rank) noexcept {
  return call.collective != topology::Collective::barrier &&
         (call.collective != topology::Collective::broadcast || rank == call.root);
}
inline bool writes_output(const DeviceCall& call, int rank) noexcept {
  return call.collective != topology::Collective::barrier &&
         (call.collective != topology::Collective::reduce || rank == call.root);
}

/// Continues the hash `before` with `numbers`, in order.
template <typename... Numbers>
std::uint64_t mixed(std::uint64_t before, Numbers... numbers) noexcept {
  ((before = mix(before ^ numbers)), ...);
  return before;
}

/// A hash that differs for different users' calls, except with negligible probability.
inline std::uint64_t fingerprint_of(const DeviceCall& part) noexcept {
  const auto called = std::bit_cast<std::array<std::uint64_t, 2>>(part.called());
  // Includes `count` and `plan`, because ranks must cut a call into the same parts by the same plan.
  return mixed(0, called[0], called[1], part.count, part.plan);
}

/// A failure of a group's calls.
struct GroupFailure {
  Error error;
  /// The number of the failed call in the group, counted from 1; 0 for no call or a captured one.
  std::uint64_t call = 0;
  std::string captured = {};  ///< The name of the captured call that failed.
  std::size_t group = 0;      ///< The index of the group in the executor.
};

/// Collectives on streams between the members of one dimension of a plan, or between all ranks. Calls must be
/// valid and the same on all members. A single thread makes the calls; another thread may call `completed`,
/// `failure` and `abort` at the same time.
class DimensionGroup {
 public:
  DimensionGroup() = default;
  DimensionGroup(const DimensionGroup&) = delete;
  DimensionGroup& operator=(const DimensionGroup&) = delete;
  virtual ~DimensionGroup() = default;

  /// Queues the call. Throws `internal` with the message of CUDA or a library.
  virtual void run(const DeviceCall& call) = 0;
  /// Whether calls can be captured in a CUDA graph that runs any number of times.
  [[nodiscard]] virtual bool can_be_captured() const noexcept { return false; }
  /// Whether reductions of floats in reproducible contexts have the same bits as on the host.
  [[nodiscard]] virtual bool is_reproducible() const noexcept { return false; }
  /// The number of completed calls, without captured ones. Does not wait. Thread-safe.
  [[nodiscard]] virtual std::uint64_t completed() = 0;
  /// The failure, if there is one. Does not wait. Thread-safe.
  [[nodiscard]] virtual std::optional<GroupFailure> failure();
  /// Ends work that waits for other ranks; work that is queued later does nothing. Thread-safe.
  virtual void abort() noexcept = 0;
  /// Looks for failures that `failure` cannot know yet. Collective; to be called when all of this rank's
  /// calls have completed without a failure.
  virtual void settle() {}
  /// To be called before the destructor, when all of this rank's calls have ended. `in_order`: nothing has
  /// failed, and the call is collective.
  virtual void close(bool in_order) noexcept = 0;

 protected:
  /// Records the failure of the call after the last completed one. Thread-safe.
  void fail(const Error& error) noexcept;

 private:
  std::mutex mutex_;
  std::optional<GroupFailure> failure_;
};

/// The ranks of a DimensionGroup: all of a context's ranks, or those of a dimension of its plans.
class GroupMembers {
 public:
  /// `communicator` holds the members, a subset of the context's ranks. Collective among them.
  GroupMembers(const Context& context, Communicator communicator);
  GroupMembers(const GroupMembers&) = delete;
  GroupMembers& operator=(const GroupMembers&) = delete;

  /// The context of all ranks. Its agreements cover all members of all groups.
  [[nodiscard]] const Context& context() const noexcept { return context_; }
  [[nodiscard]] Communicator& communicator() noexcept { return communicator_; }
  [[nodiscard]] int rank() const noexcept { return communicator_.rank(); }
  [[nodiscard]] int size() const noexcept { return communicator_.size(); }
  /// The rank in the context of each member.
  [[nodiscard]] const std::vector<int>& ranks() const noexcept { return ranks_; }
  /// The longest time that members wait for each other.
  [[nodiscard]] std::chrono::nanoseconds deadline() const { return context_.options().deadline; }
  [[nodiscard]] double deadline_seconds() const { return std::chrono::duration<double>(deadline()).count(); }

 private:
  Context context_;
  Communicator communicator_;
  std::vector<int> ranks_;
};

/// Limits the blocks of waiting kernels on a device, over all communicators of the process. If more blocks
/// waited than fit on the device, the kernels that they wait for could not start. One half of the device is
/// for the exchange; the other half is for holds (see UcxGroup), one kernel of one block for each rank, and
/// for the kernels that holds wait for.
class BlockBudget {
 public:
  enum class Half : std::uint8_t { exchange, holds };

  explicit BlockBudget(Half which) : half_(which) {}
  BlockBudget(const BlockBudget&) = delete;
  BlockBudget& operator=(const BlockBudget&) = delete;
  ~BlockBudget();

  /// The blocks taken so far from the device's half. Thread-safe.
  [[nodiscard]] std::int64_t taken(int device) const;
  /// Takes `blocks` for the lifetime of this object if the half then has at most `room` blocks taken, and
  /// returns whether it did. Must not be called again after it has succeeded. Thread-safe.
  [[nodiscard]] bool take(int device, std::int64_t blocks, std::int64_t room);

 private:
  const Half half_;
  int device_ = -1;
  std::int64_t blocks_ = 0;
};

class DeviceTable;

// These open groups on the selected device. Collective; they throw agreed errors.

/// Collectives by NCCL. `name` is for messages. Throws `unsupported` without NCCL or if members share a
/// device, `timeout` at the deadline, `internal` with NCCL's message.
std::unique_ptr<DimensionGroup> open_nccl_group(std::string name, GroupMembers& members,
                                                const DeviceTable& devices);
/// Collectives through page-locked memory and the host engine, for several hosts without NCCL and UCX. Throws
/// `unsupported` if ranks are threads of one process, or if the engine has no thread of its own.
std::unique_ptr<DimensionGroup> open_host_group(GroupMembers& members, const DeviceTable& devices);
/// Collectives through a CUDA-aware UCX worker of the group's own. `staging_bytes`: see DeviceOptions. Throws
/// `unsupported` if UCX cannot be used, does not know device memory or delivers wrong data;
/// `invalid_argument` if `staging_bytes` is too small.
std::unique_ptr<DimensionGroup> open_ucx_group(GroupMembers& members, const DeviceTable& devices,
                                               std::size_t staging_bytes);

/// Presents a context as a Bootstrap, to open networks and discover topologies beside its communicator.
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
