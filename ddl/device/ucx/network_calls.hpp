#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/device/cuda_check.hpp"
#include "collectives/program/prepared_program.hpp"
#include "collectives/transports/network/network.hpp"
#include "collectives/transports/network/ucx_network.hpp"
#include "ddl/device/runtime/cuda_handles.hpp"
#include "ddl/device/runtime/dimension_group.hpp"
#include "ddl/device/ucx/network_executor.hpp"
#include "ddl/topology/program.hpp"
#include "topology/program/passes.hpp"
#include "topology/refuse.hpp"

namespace ddl::device {

/// Whether the network accepts pointers to device memory. Tests on emulated devices, whose memory is the
/// host's, define their own version.
bool carries_device_memory(const collectives::UcxNetwork& network);

/// Runs calls on device memory through a network, one after the other. Messages carry a fingerprint, by which
/// members check that they make the same calls. A call is cut into parts that fit in the staging memory; each
/// part is a program, the lowered plan of the call with all messages on the network. Apart from the
/// constructor, only one thread may use it.
class NetworkCalls {
 public:
  /// Uses the selected device, and allocates twice `staging_bytes` and 16 MiB of its memory. The arguments
  /// must outlive the object. Not collective. Throws `unsupported` without enough device memory,
  /// `invalid_argument` if `staging_bytes` is too small.
  NetworkCalls(GroupMembers& members, collectives::Network& network, collectives::device::Gate& gate,
               std::size_t staging_bytes)
      : members_(members),
        staging_bytes_(checked(staging_bytes, members.size())),
        work_(allocate_on_device(staging_bytes, "UCX")),
        executor_(network, gate, members, staging_bytes),
        meeting_(prepared(topology::lower_barrier(members.size(), members.rank()), 1, DataType::u8)) {}

  /// Returns when the device has completed the call. Throws as NetworkExecutor::run.
  void run(const DeviceCall& call) {
    history_ = mixed(history_, fingerprint_of(call));
    if (call.collective == Collective::barrier) return meet();
    if (members_.size() == 1) {
      copy(call.output, call.input, call.count * size_of(call.type));
      return executor_.wait_for_stream();
    }
    const std::size_t at_once = most_at_once(call);
    for (std::size_t first = 0; first < call.count; first += at_once) {
      if ((rounds_ + 1) % rounds_between_meetings == 0) meet();
      run_part(call, first, std::min(at_once, call.count - first));
    }
  }

  /// To be called after the last call: checks that it was the last call on all ranks.
  void conclude() {
    constexpr std::uint64_t all_is_called = 1;
    history_ = mixed(history_, all_is_called);
    meet();
  }

  [[nodiscard]] NetworkExecutor& executor() noexcept { return executor_; }

 private:
  using Collective = topology::Collective;
  using PreparedProgram = collectives::PreparedProgram;
  static constexpr std::size_t most_programs = 1024;
  static constexpr std::size_t line_bytes = 128;
  /// The number of programs after which all ranks meet. Tags reuse sequence numbers, so a root must not run
  /// further ahead of its peers than tags can tell apart.
  static constexpr std::uint64_t rounds_between_meetings = 32;

  static std::size_t checked(std::size_t staging_bytes, int ranks) {
    constexpr std::size_t least_of_all = std::size_t{64} << 10;
    constexpr std::size_t least_of_rank = 1024;
    const std::size_t least = std::max(least_of_all, as_index(ranks) * least_of_rank);
    if (staging_bytes >= least) return staging_bytes;
    fail_with(ErrorCode::invalid_argument, "DeviceOptions::staging_bytes: found {}, expected {} or more",
              staging_bytes, least);
  }

  static collectives::Buffers in_place(std::byte* elements) {
    return {.input = elements, .output = elements, .end = std::numeric_limits<std::size_t>::max()};
  }

  /// The largest scratch memory of any rank, as a multiple of the element count, rounded up.
  static std::size_t scratch_factor(const topology::Plan& plan) {
    const std::size_t parts = as_index(plan.chunks) * (1 + plan.further_orders.size());
    const std::size_t count = 64 * plan.order.size() * parts;
    std::size_t most = 0;
    for (const topology::Program& program : topology::lower_all(plan, count).ranks) {
      most = std::max(most, program.scratch);
    }
    return (most + count - 1) / count;
  }

  /// Collective, root, count, type, hash of the plan.
  using Key = std::tuple<topology::Collective, int, std::size_t, DataType, std::uint64_t>;
  using Prepared = std::shared_ptr<const collectives::PreparedProgram>;

  /// The largest number of the call's elements that one program may handle. Depends only on the call and on
  /// memory sizes that all ranks share, so all ranks choose the same cuts.
  [[nodiscard]] std::size_t most_at_once(const DeviceCall& call) {
    const std::size_t element = size_of(call.type);
    const std::size_t room = staging_bytes_ / element / pieces_of(call.collective, members_.size());
    std::size_t most = call.count;
    if (call.collective == Collective::reduce || call.collective == Collective::reduce_scatter) {
      most = std::min(most, room);
    }
    const auto [factor, is_new] = scratch_factors_.try_emplace(call.plan);
    if (is_new) factor->second = scratch_factor(*call.steps);
    if (factor->second > 0) most = std::min(most, room / (factor->second + 1));  // pieces are rounded up
    if (most == call.count) return most;
    const std::size_t line = line_bytes / element;
    return std::max(most / line * line, std::size_t{1});
  }

  [[nodiscard]] const Prepared& program_of(const DeviceCall& call, std::size_t count) {
    if (programs_.size() >= most_programs) programs_.clear();
    Prepared& program = programs_[{call.collective, call.root, count, call.type, call.plan}];
    if (!program) {
      const std::size_t elements = count * pieces_of(call.collective, members_.size());
      program =
          prepared(topology::lower(*call.steps, members_.rank(), elements, call.root), elements, call.type);
    }
    return program;
  }

  [[nodiscard]] Prepared prepared(topology::Program program, std::size_t elements, DataType type) const {
    const auto job = as_index(members_.context().size());
    const collectives::Ways by_network{
        .member = std::vector<int>(job, collectives::Ways::no_member),
        .message_bytes = {NetworkExecutor::block_bytes, NetworkExecutor::block_bytes}};
    return std::make_shared<const PreparedProgram>(std::move(program), elements, size_of(type),
                                                   members_.ranks(), by_network);
  }

  void run_part(const DeviceCall& call, std::size_t first, std::size_t count) {
    if (call.collective == Collective::reduce_scatter) return reduce_scatter_part(call, first, count);
    const std::size_t offset = first * size_of(call.type);
    collectives::Buffers buffers = in_place(call.output + offset);
    buffers.input = call.input + offset;
    // The program expects this rank's piece at its place among all pieces, but the input holds only that
    // piece. An all_gather is never cut.
    if (call.collective == Collective::all_gather) {
      const std::size_t before = as_index(members_.rank()) * call.count * size_of(call.type);
      buffers.input =
          reinterpret_cast<const std::byte*>(reinterpret_cast<std::uintptr_t>(call.input) - before);
    }
    if (!reads_input(call, members_.rank())) buffers.input = buffers.output;
    if (!writes_output(call, members_.rank())) buffers.output = work_.get();
    run_program(call, program_of(call, count), buffers);
  }

  /// Partial results take as much memory as the input, which must not be overwritten, so they go to `work_`.
  void reduce_scatter_part(const DeviceCall& call, std::size_t first, std::size_t count) {
    const std::size_t element = size_of(call.type);
    const std::size_t bytes = count * element;
    std::byte* const work = work_.get();
    copy_pieces(work, bytes, call.input + first * element, call.count * element, bytes,
                as_index(members_.size()), cudaMemcpyDeviceToDevice, executor_.stream());
    executor_.wait_for_stream();
    run_program(call, program_of(call, count), in_place(work));
    copy(call.output + first * element, work + as_index(members_.rank()) * bytes, bytes);
    executor_.wait_for_stream();
  }

  void run_program(const DeviceCall& call, const Prepared& program, collectives::Buffers buffers) {
    const std::size_t element = size_of(call.type);
    if (program->reads_mixtures() && buffers.input != buffers.output) {
      copy(buffers.output, buffers.input, program->count() * element);
      executor_.wait_for_stream();
      buffers.input = buffers.output;
    }
    run_next(program, buffers, call.type, call.op);
    if (buffers.input == buffers.output || !writes_output(call, members_.rank())) return;
    // Copies the parts of the input that the output contains unchanged.
    for (const PreparedProgram::Range& range : program->unwritten()) {
      copy(buffers.output + range.begin * element, buffers.input + range.begin * element,
           (range.end - range.begin) * element);
    }
    if (!program->unwritten().empty()) executor_.wait_for_stream();
  }

  void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, executor_.stream()),
               "cudaMemcpyAsync");
  }

  void meet() { run_next(meeting_, in_place(work_.get()), DataType::u8, ReduceOp::sum); }
  /// Messages carry a hash of all calls so far, which also shows a mismatch in a call that no rank waited
  /// for.
  void run_next(const Prepared& program, const collectives::Buffers& buffers, DataType type, ReduceOp op) {
    executor_.run({.sequence = ++rounds_,
                   .buffers = buffers,
                   .type = type,
                   .op = op,
                   .fingerprint = static_cast<std::uint32_t>(history_),
                   .program = program});
  }

  GroupMembers& members_;
  const std::size_t staging_bytes_;
  DeviceBytes work_;  // partial results that do not belong in the output
  NetworkExecutor executor_;
  const Prepared meeting_;
  std::map<Key, Prepared> programs_;
  std::map<std::uint64_t, std::size_t> scratch_factors_;  // by the plan's hash
  std::uint64_t rounds_ = 0;                              // programs started
  std::uint64_t history_ = 0;                             // hash of all calls so far
};

}  // namespace ddl::device
