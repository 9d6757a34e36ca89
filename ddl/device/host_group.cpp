#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "collectives/device/cuda_check.hpp"
#include "collectives/system/fail_agreed.hpp"
#include "ddl/device/runtime/cuda_handles.hpp"
#include "ddl/device/runtime/device_table.hpp"
#include "ddl/device/runtime/dimension_group.hpp"

namespace ddl::device {
namespace {

using topology::Collective;

/// Collectives through page-locked memory and the host engine, for several hosts without NCCL and UCX. Calls
/// are cut into parts, and the three stages of each part (copy to the host, host collective, copy back) are
/// pipelined. CUDA's thread for host functions runs the host collectives, so no thread of the trainer waits,
/// but each rank must be a process.
class HostGroup final : public DimensionGroup {
 public:
  /// See open_host_group.
  HostGroup(GroupMembers& members, const DeviceTable& devices)
      : members_(members), communicator_(members.communicator().split(0)) {
    // CUDA runs all host functions of a process on one thread, so one rank's function would wait there for
    // another's that is queued behind it.
    if (!devices.is_one_process_each()) {
      fail_agreed(
          ErrorCode::unsupported,
          "collectives on devices through the host's memory: ranks are threads of one process, expected "
          "processes");
    }
    if (!members.context().has_progress_thread()) {
      fail_agreed(
          ErrorCode::unsupported,
          "collectives on devices through the host's memory: the hosts' data goes by MPI, which only "
          "the thread that made the Context may call, expected UCX between the hosts (DDL_NETWORK=ucx, "
          "and no plans by MPI alone), or NCCL between the devices");
    }
    members.context().on_all_ranks("devices through the host's memory", [&] {
      for (Stream* stream : {&in_, &reduction_, &out_}) *stream = make_stream();
      joint_ = make_event();
      for (Slot& slot : slots_) {
        for (Pinned<std::byte>* buffer : {&slot.input, &slot.output}) {
          *buffer = make_pinned<std::byte>(slot_bytes);
        }
        for (Event* event : {&slot.reduced, &slot.copied_out}) *event = make_event();
      }
    });
  }

  void run(const DeviceCall& call) override {
    const std::size_t element = size_of(call.type);
    const auto [in_pieces, out_pieces, most] = staged_pieces(call, members_.size(), slot_bytes);
    const std::size_t whole = call.count * element;
    const bool reads = reads_input(call, members_.rank());
    const bool writes = writes_output(call, members_.rank());
    join(call.stream, in_.get(), joint_);
    join(call.stream, out_.get(), joint_);
    std::size_t first = 0;
    do {
      Slot& slot = slots_[next_++ % slots];
      const std::size_t elements = std::min(most, call.count - first);
      const std::size_t bytes = elements * element;
      // Waits until the slot's previous part has been reduced, and below until its result has been copied
      // out.
      check_cuda(cudaStreamWaitEvent(in_.get(), slot.reduced.get(), 0), "cudaStreamWaitEvent");
      if (reads) {
        copy_pieces(slot.input.get(), bytes, call.input + first * element, whole, bytes, in_pieces,
                    cudaMemcpyDeviceToHost, in_.get());
      }
      join(in_.get(), reduction_.get(), joint_);
      check_cuda(cudaStreamWaitEvent(reduction_.get(), slot.copied_out.get(), 0), "cudaStreamWaitEvent");
      auto part = std::make_unique<Part>(Part{this, call, first + elements >= call.count});
      part->call.input = slot.input.get();
      part->call.output = slot.output.get();
      part->call.count = elements;
      check_cuda(cudaLaunchHostFunc(reduction_.get(), reduce_part, part.get()), "cudaLaunchHostFunc");
      part.release();  // reduce_part owns it now
      join(reduction_.get(), out_.get(), slot.reduced);
      if (writes) {
        copy_pieces(call.output + first * element, whole, slot.output.get(), bytes, bytes, out_pieces,
                    cudaMemcpyHostToDevice, out_.get());
      }
      join(out_.get(), call.stream, slot.copied_out);
      first += elements;
    } while (first < call.count);
  }

  [[nodiscard]] bool is_reproducible() const noexcept override { return true; }  // the host engine reduces
  [[nodiscard]] std::uint64_t completed() override { return completed_; }
  void abort() noexcept override {}  // the host engine ends its own calls
  void close(bool /*in_order*/) noexcept override {
    // Host functions of failed calls end with the host engine's calls, at the deadline at the latest.
    for (const Stream* stream : {&in_, &reduction_, &out_}) cudaStreamSynchronize(stream->get());
  }

 private:
  /// The argument of the host function.
  struct Part {
    HostGroup* group;
    DeviceCall call;  // its buffers are in host memory
    bool is_last;
  };
  /// Memory for a part, and the events after which the next part may use it.
  struct Slot {
    Pinned<std::byte> input, output;
    Event reduced, copied_out;
  };
  static constexpr std::size_t slots = 3;
  static constexpr std::size_t slot_bytes = std::size_t{4} << 20;

  static void reduce_part(void* part) {
    const std::unique_ptr<Part> own(static_cast<Part*>(part));
    own->group->reduce(own->call);
    if (own->is_last) ++own->group->completed_;
  }

  /// Runs on CUDA's host function thread, where CUDA calls are forbidden.
  void reduce(const DeviceCall& call) noexcept {
    if (failure()) return;  // outputs are undefined after a failure
    try {
      switch (call.collective) {
        case Collective::all_reduce:
          return communicator_.all_reduce(call.input, call.output, call.count, call.type, call.op);
        case Collective::reduce_scatter:
          return communicator_.reduce_scatter(call.input, call.output, call.count, call.type, call.op);
        case Collective::all_gather:
          return communicator_.all_gather(call.input, call.output, call.count, call.type);
        case Collective::broadcast:
          return communicator_.broadcast(call.input, call.output, call.count, call.type, call.root);
        case Collective::reduce:
          return communicator_.reduce(call.input, call.output, call.count, call.type, call.op, call.root);
        case Collective::barrier:
          return communicator_.barrier();
      }
    } catch (...) {
      fail(as_error(std::current_exception()));
    }
  }

  GroupMembers& members_;
  Communicator communicator_;  // used only by CUDA's host function thread
  Stream in_, reduction_, out_;
  Event joint_;
  Slot slots_[slots];
  std::size_t next_ = 0;

  std::atomic<std::uint64_t> completed_ = 0;  // calls reduced on the host; the copy back may be in flight
};

}  // namespace

std::unique_ptr<DimensionGroup> open_host_group(GroupMembers& members, const DeviceTable& devices) {
  return std::make_unique<HostGroup>(members, devices);
}

}  // namespace ddl::device
