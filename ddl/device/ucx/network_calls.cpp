#include "ddl/device/ucx/network_calls.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ddl/cuda_check.hpp"
#include "ddl/error.hpp"

namespace ddl::device {
namespace {

using topology::Collective;

constexpr std::size_t least_staging = std::size_t{64} << 10;
constexpr std::size_t least_staging_of_rank = 1024;
/// Of programs, after which all ranks meet: numbers in tags are used again, and a root must not be further
/// ahead than they tell.
constexpr std::uint64_t rounds_between_meetings = 32;

template <typename Pointer>
Pointer moved_back(Pointer data, std::size_t bytes) {
  return reinterpret_cast<Pointer>(reinterpret_cast<std::uintptr_t>(data) - bytes);
}

std::size_t checked(std::size_t staging_bytes, int ranks) {
  const std::size_t least = std::max(least_staging, static_cast<std::size_t>(ranks) * least_staging_of_rank);
  if (staging_bytes >= least) return staging_bytes;
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("DeviceOptions::staging_bytes: found {}, expected {} or more", staging_bytes, least));
}

}  // namespace

NetworkCalls::NetworkCalls(GroupMembers& members, collectives::Network& network, Turns& turns,
                           std::size_t staging_bytes)
    : rank_(members.rank()),
      ranks_(members.size()),
      work_(allocate_bytes(checked(staging_bytes, ranks_))),
      scratch_(allocate_bytes(staging_bytes)),
      receiving_(allocate_bytes(NetworkExecutor::blocks * NetworkExecutor::block_bytes)),
      executor_(network, turns, rank_, members.ranks(), {scratch_.get(), staging_bytes, receiving_.get()},
                members.context().options().deadline),
      recipes_(members, staging_bytes, NetworkExecutor::block_bytes) {}

void NetworkCalls::conclude() {
  constexpr std::uint64_t all_is_called = 1;
  history_.add(all_is_called);
  meet();
}

void NetworkCalls::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, executor_.stream()),
             "cudaMemcpyAsync");
}

/// Messages tell all that has been called so far: what differs is noticed even where nobody waited for it.
collectives::MessageTag NetworkCalls::next_round() {
  return {.call = static_cast<std::uint16_t>(++rounds_),
          .fingerprint = static_cast<std::uint32_t>(history_.value())};
}

void NetworkCalls::meet() {
  const NetworkExecutor::Buffers buffers{work_.get(), work_.get()};
  executor_.run({recipes_.meeting(), buffers, DataType::u8, ReduceOp::sum, next_round()});
}

void NetworkCalls::run(const DeviceCall& call) {
  history_.add(fingerprint_of(call));
  if (call.collective == Collective::barrier) return meet();
  if (ranks_ == 1) return copy_alone(call);
  const Recipe& recipe = recipes_.of(call);
  history_.add(recipe.plan);
  history_.add(recipe.at_once);
  for (std::size_t first = 0; first < call.count; first += recipe.at_once) {
    const std::size_t elements = std::min(recipe.at_once, call.count - first);
    const bool is_rest = elements < recipe.at_once;
    do_part(call, {first, elements, is_rest ? *recipe.last : *recipe.part});
  }
}

void NetworkCalls::copy_alone(const DeviceCall& call) {
  copy(call.output, call.input, call.count * size_of(call.type));
  executor_.wait_for_stream();
}

void NetworkCalls::do_part(const DeviceCall& call, const Part& part) {
  if ((rounds_ + 1) % rounds_between_meetings == 0) meet();
  const std::size_t offset = part.first * size_of(call.type);
  NetworkExecutor::Buffers buffers{call.input + offset, call.output + offset};
  switch (call.collective) {
    case Collective::reduce_scatter:
      return reduce_scatter_part(call, part);
    case Collective::all_gather:  // never in parts
      buffers.input =
          moved_back(call.input, static_cast<std::size_t>(rank_) * call.count * size_of(call.type));
      break;
    case Collective::broadcast:
      if (rank_ != call.root) buffers.input = buffers.target;
      break;
    case Collective::reduce:
      if (rank_ != call.root) buffers.target = work_.get();
      break;
    default:
      break;
  }
  run_program(call, part, buffers);
}

/// Its partial results take as much memory as its input, which is not theirs.
void NetworkCalls::reduce_scatter_part(const DeviceCall& call, const Part& part) {
  const std::size_t element = size_of(call.type);
  const std::size_t bytes = part.elements * element;
  std::byte* const work = work_.get();
  copy_pieces(work, bytes, call.input + part.first * element, call.count * element, bytes,
              static_cast<std::size_t>(ranks_), cudaMemcpyDeviceToDevice, executor_.stream());
  executor_.wait_for_stream();
  run_program(call, part, {work, work});
  copy(call.output + part.first * element, work + static_cast<std::size_t>(rank_) * bytes, bytes);
  executor_.wait_for_stream();
}

void NetworkCalls::run_program(const DeviceCall& call, const Part& part,
                               const NetworkExecutor::Buffers& buffers) {
  NetworkExecutor::Buffers from = buffers;
  if (part.program.reads_mixtures() && buffers.input != buffers.target) {
    copy(buffers.target, buffers.input, part.program.count() * size_of(call.type));
    executor_.wait_for_stream();
    from.input = buffers.target;
  }
  executor_.run({part.program, from, call.type, call.op, next_round()});
  if (from.input != from.target) copy_unwritten(call, part, from);
}

/// What the output has of this rank's input as it is.
void NetworkCalls::copy_unwritten(const DeviceCall& call, const Part& part,
                                  const NetworkExecutor::Buffers& buffers) {
  if (call.collective == Collective::reduce && rank_ != call.root) return;
  const std::size_t element = size_of(call.type);
  bool waits = false;
  for (const auto& range : part.program.unwritten()) {
    copy(buffers.target + range.begin * element, buffers.input + range.begin * element,
         (range.end - range.begin) * element);
    waits = true;
  }
  if (waits) executor_.wait_for_stream();
}

}  // namespace ddl::device
