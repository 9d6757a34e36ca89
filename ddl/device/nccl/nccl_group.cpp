#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/device/cuda_check.hpp"
#include "ddl/device/nccl/nccl_library.hpp"
#include "ddl/device/runtime/cuda_handles.hpp"
#include "ddl/device/runtime/device_table.hpp"
#include "ddl/device/runtime/dimension_group.hpp"
#include "ddl/work.hpp"
#include "topology/refuse.hpp"

namespace ddl::device {
namespace {

using topology::Collective;
using Clock = std::chrono::steady_clock;

constexpr ncclDataType_t nccl_types[] = {ncclUint8,   ncclInt32,   ncclInt64,   ncclFloat32,
                                         ncclFloat64, ncclFloat16, ncclBfloat16};   // by DataType
constexpr ncclRedOp_t nccl_ops[] = {ncclSum, ncclAvg, ncclMin, ncclMax, ncclProd};  // by ReduceOp
constexpr const char* functions[] = {"ncclAllReduce",     "ncclBroadcast", "ncclAllReduce",
                                     "ncclReduceScatter", "ncclAllGather", "ncclReduce"};  // by Collective

/// The first call that differs between ranks, from comparisons of so many calls each that may end in any
/// order.
class FirstDifference {
 public:
  static constexpr std::size_t calls = 64;

  /// `before`: number of calls before those that were compared. `differs`: number of the first one that
  /// differs, counted from 1 over all calls; 0: none.
  void add(std::uint64_t before, std::uint64_t differs) {
    const std::lock_guard lock(mutex_);
    ended_[before] = differs;
    for (auto next = ended_.find(compared_); next != ended_.end(); next = ended_.find(compared_)) {
      std::uint64_t none = 0;
      found_.compare_exchange_strong(none, next->second);
      ended_.erase(next);
      compared_ += calls;
    }
  }
  /// 0: none among the calls of which all before were compared.
  [[nodiscard]] std::uint64_t found() const noexcept { return found_; }
  [[nodiscard]] std::uint64_t compared() const noexcept { return compared_; }

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> ended_;  // what was found, by the number of calls before
  std::atomic<std::uint64_t> compared_ = 0, found_ = 0;
};

const NcclLibrary& nccl() { return NcclLibrary::get(); }

/// Refuses members that share a device before NCCL does, whose message is unclear. With NCCL_HOSTID set, NCCL
/// can take them for ranks on several hosts.
void refuse_shared_devices(const GroupMembers& members, const DeviceTable& devices) {
  if (std::getenv("NCCL_HOSTID") != nullptr) return;
  for (const int rank : members.ranks()) {
    const auto shares = [&](int other) { return devices.of(other).uuid == devices.of(rank).uuid; };
    if (std::ranges::count_if(members.ranks(), shares) == 1) continue;
    fail_with(ErrorCode::unsupported, "NCCL cannot be used: rank {} shares its device with another one",
              rank);
  }
}

/// Collectives by NCCL. Its kernels wait without a timeout, so `failure` must be called regularly. NCCL does
/// not check that ranks make the same calls: different operations give wrong results, and different counts
/// may. So the hosts compare fingerprints of 64 calls at a time, asynchronously.
class NcclGroup final : public DimensionGroup {
 public:
  /// See open_nccl_group. Delegates to the other constructor, so that the destructor frees the communicator
  /// if a later step throws.
  NcclGroup(std::string name, GroupMembers& members, const DeviceTable& devices)
      : NcclGroup(std::move(name), members) {
    const Context& context = members.context();
    context.on_all_ranks("NCCL", [&] { NcclLibrary::get(); });
    context.on_all_ranks("NCCL", [&] { refuse_shared_devices(members, devices); });
    open();
    context.on_all_ranks("NCCL's memory", [&] {
      done_.allocate();
      meeting_ = allocate_on_device(1, fmt::format("rank {}", context.rank()));
    });
  }

  ~NcclGroup() override { NcclGroup::close(true); }

  void run(const DeviceCall& call) override {
    queue(call);
    history_ = mixed(history_, fingerprint_of(call));
    if (call.is_captured) return;  // part of the fingerprint of the next call that is not captured
    fingerprints_.push_back(static_cast<std::int64_t>(history_));
    if (fingerprints_.size() == FirstDifference::calls) compare();
    mark(call.stream);
  }

  [[nodiscard]] bool can_be_captured() const noexcept override { return true; }
  [[nodiscard]] std::uint64_t completed() override { return done_.value(); }
  /// Also checks the deadline, because NCCL's kernels wait without a timeout.
  [[nodiscard]] std::optional<GroupFailure> failure() override {
    if (const auto found = failure_of_nccl()) return GroupFailure{*found, completed() + 1};
    if (const std::uint64_t call = difference_->found(); call != 0) {
      return GroupFailure{
          {ErrorCode::mismatch,
           "other ranks have called something else; all ranks must make the same calls, in the "
           "same order. NCCL does not notice: results since then are wrong"},
          call};
    }
    const std::uint64_t done = done_.value();
    const std::lock_guard lock(mutex_);
    if (done != seen_ || done == called_) {
      seen_ = done;
      progress_ = Clock::now();
    }
    if (Clock::now() - progress_ <= members_.deadline()) return {};
    return GroupFailure{
        {ErrorCode::timeout,
         fmt::format("no progress for {:g} s; some rank has not arrived, or makes no progress (a longer "
                     "deadline: DDL_DEADLINE, in seconds)",
                     members_.deadline_seconds())},
        done + 1};
  }

  /// Also works while another thread is blocked in a launch behind waiting kernels. ncclCommAbort ends the
  /// kernels, but frees memory that a concurrent call still uses. During a call the communicator is only
  /// revoked, if NCCL can do that, and the thread of the call aborts it.
  void abort() noexcept override {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_aborted_, true)) return;
    if (is_in_call_ && nccl().revoke != nullptr) {
      nccl().revoke(communicator_, 0);
    } else {
      abort_communicator();
    }
  }

  void settle() override {
    compare();
    const auto is_compared = [&] { return comparison_.test() && difference_->compared() == compared_; };
    while (!is_compared() && !failure()) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }

  void close(bool in_order) noexcept override {
    if (!in_order) {
      abort();
      done_.abandon();
    }
    if (communicator_ == nullptr || is_aborted_) return;
    try {
      const auto end = [communicator = std::exchange(communicator_, nullptr)] {
        const ncclResult_t finalized = nccl().finalize(communicator);
        return finalized == ncclSuccess ? nccl().destroy(communicator) : nccl().abort(communicator);
      };
      static_cast<void>(within_deadline("ncclCommDestroy", end));
    } catch (const Error&) {
      // The abandoned thread still uses the communicator.
    }
  }

 private:
  NcclGroup(std::string name, GroupMembers& members)
      : name_(std::move(name)), members_(members), comparing_(members.communicator().split(0)) {}

  /// Creates a blocking communicator, because NCCL runs each collective of a non-blocking one on a new
  /// thread.
  void open() {
    const Context& context = members_.context();
    ncclUniqueId id{};
    context.on_all_ranks(name_, [&] {
      if (members_.rank() != 0) return;
      const ncclResult_t result = nccl().get_unique_id(&id);
      if (result == ncclSuccess) return;
      fail_with(ErrorCode::internal, "ncclGetUniqueId failed: {}", nccl().text_of(result, nullptr));
    });
    members_.communicator().broadcast(Elements(&id, sizeof id, DataType::u8), 0);
    context.on_all_ranks(name_, [&] {
      int device = 0;
      check_cuda(cudaGetDevice(&device), "cudaGetDevice");
      const auto made = std::make_shared<ncclComm_t>(nullptr);
      const auto set_up = [=, rank = members_.rank(), size = members_.size()] {
        cudaSetDevice(device);
        ncclConfig_t configuration = NCCL_CONFIG_INITIALIZER;
        return nccl().init(made.get(), size, id, rank, &configuration);
      };
      const ncclResult_t result = within_deadline("ncclCommInitRankConfig", set_up);
      if (result != ncclSuccess) {
        throw Error(ErrorCode::internal, error_of(result, "ncclCommInitRankConfig").what());
      }
      communicator_ = *made;
    });
  }

  /// `abort` may run during the call. In that case this thread frees the communicator after the call.
  void queue(const DeviceCall& call) {
    const char* const function = functions[as_index(call.collective)];
    {
      const std::lock_guard lock(mutex_);
      if (is_aborted_) fail_with(ErrorCode::peer_failed, "{} of {}: it was ended", function, name_);
      is_in_call_ = true;
    }
    const ncclResult_t result = launch(call);
    {
      const std::lock_guard lock(mutex_);
      is_in_call_ = false;
      if (is_aborted_) abort_communicator();
    }
    if (result != ncclSuccess) throw error_of(result, function);
  }

  [[nodiscard]] ncclResult_t launch(const DeviceCall& call) const {
    const ncclDataType_t type = nccl_types[as_index(call.type)];
    const ncclRedOp_t op = nccl_ops[as_index(call.op)];
    switch (call.collective) {
      case Collective::all_reduce:
        return nccl().all_reduce(call.input, call.output, call.count, type, op, communicator_, call.stream);
      case Collective::reduce_scatter:
        return nccl().reduce_scatter(call.input, call.output, call.count, type, op, communicator_,
                                     call.stream);
      case Collective::all_gather:
        return nccl().all_gather(call.input, call.output, call.count, type, communicator_, call.stream);
      case Collective::broadcast:
        return nccl().broadcast(call.input, call.output, call.count, type, call.root, communicator_,
                                call.stream);
      case Collective::reduce:
        return nccl().reduce(call.input, call.output, call.count, type, op, call.root, communicator_,
                             call.stream);
      case Collective::barrier:
        return nccl().all_reduce(meeting_.get(), meeting_.get(), 1, ncclUint8, ncclSum, communicator_,
                                 call.stream);
    }
    return ncclInvalidArgument;
  }

  /// The fingerprints of all ranks are equal if, on each rank, the maximum of the fingerprints is its own and
  /// the maximum of their complements is its own complement.
  void compare() {
    fingerprints_.resize(FirstDifference::calls);
    const std::vector<std::int64_t> own = std::exchange(fingerprints_, {});
    const auto greatest = std::make_shared<std::vector<std::int64_t>>(own);
    for (const std::int64_t fingerprint : own) greatest->push_back(~fingerprint);
    comparison_ = comparing_.all_reduce_async(std::span(*greatest), ReduceOp::max);
    comparison_.then([own, greatest, difference = difference_, before = compared_](const Error* error) {
      std::size_t same = 0;
      while (same < own.size() && (*greatest)[same] == own[same] &&
             (*greatest)[own.size() + same] == ~own[same])
        ++same;
      difference->add(before, error == nullptr && same < own.size() ? before + same + 1 : 0);
    });
    compared_ += FirstDifference::calls;
  }

  /// Counts the call, and restarts the deadline if no other call is in flight.
  void mark(DeviceStream stream) {
    if (done_.value() == called_) {
      const std::lock_guard lock(mutex_);
      progress_ = Clock::now();
    }
    done_.write(++called_, stream);
  }

  void abort_communicator() noexcept {
    if (communicator_ != nullptr) nccl().abort(std::exchange(communicator_, nullptr));
  }

  [[nodiscard]] std::optional<Error> failure_of_nccl() const {
    const std::lock_guard lock(mutex_);
    if (is_aborted_) return {};
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = nccl().async_error(communicator_, &state);
    if (asked != ncclSuccess) return error_of(asked, "ncclCommGetAsyncError");
    if (state == ncclSuccess || state == ncclInProgress) return {};
    return error_of(state, "a collective");
  }

  /// Runs `function`, which may wait for other ranks forever, on a thread that is abandoned at the deadline.
  [[nodiscard]] ncclResult_t within_deadline(const char* name, std::function<ncclResult_t()> function) const {
    auto task = std::make_shared<std::packaged_task<ncclResult_t()>>(std::move(function));
    std::future<ncclResult_t> result = task->get_future();
    std::thread([task] { (*task)(); }).detach();
    if (result.wait_for(members_.deadline()) == std::future_status::ready) return result.get();
    fail_with(ErrorCode::timeout, "{} of {}: waited {:g} s on its rank {} of {}; some rank has not arrived",
              name, name_, members_.deadline_seconds(), members_.rank(), members_.size());
  }

  [[nodiscard]] Error error_of(ncclResult_t result, const char* function) const {
    const ErrorCode code = result == ncclRemoteError ? ErrorCode::peer_failed : ErrorCode::internal;
    return {code, fmt::format("{} of {} failed on its rank {} of {}: {}", function, name_, members_.rank(),
                              members_.size(), nccl().text_of(result, communicator_))};
  }

  const std::string name_;
  GroupMembers& members_;
  DeviceBytes meeting_;  // the byte that barriers reduce
  StreamMark done_;      // completed calls
  std::atomic<std::uint64_t> called_ = 0;

  // Comparison of the ranks' calls.
  Communicator comparing_;
  std::uint64_t history_ = 0;
  std::vector<std::int64_t> fingerprints_;  // not compared yet
  std::uint64_t compared_ = 0;              // number of calls whose comparison has begun
  Work comparison_;                         // the last one
  const std::shared_ptr<FirstDifference> difference_ = std::make_shared<FirstDifference>();

  mutable std::mutex mutex_;  // protects the members below; not held during launches
  ncclComm_t communicator_ = nullptr;
  bool is_in_call_ = false;
  bool is_aborted_ = false;
  // The deadline counts from `progress_`, the time when `seen_` calls were found complete.
  std::uint64_t seen_ = 0;
  std::chrono::steady_clock::time_point progress_;
};

}  // namespace

std::unique_ptr<DimensionGroup> open_nccl_group(std::string name, GroupMembers& members,
                                                const DeviceTable& devices) {
  return std::make_unique<NcclGroup>(std::move(name), members, devices);
}

}  // namespace ddl::device
