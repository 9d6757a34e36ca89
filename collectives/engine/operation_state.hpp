#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/engine/operation.hpp"
#include "collectives/engine/phase_times.hpp"
#include "collectives/engine/work_state.hpp"
#include "collectives/kernels/reduce.hpp"
#include "collectives/transports/network/network.hpp"
#include "collectives/transports/shared_memory/host_memory.hpp"

namespace ddl::collectives {

/// How far a call has come. Used again for later calls, so that those allocate nothing.
struct OperationState {
  /// What is known of a message from a member.
  struct Arrival {
    const std::byte* data = nullptr;  ///< Null: has not come yet.
    std::byte* held = nullptr;        ///< A block that `data` was copied to.
    bool wants_read = false;          ///< The sender waits until it has been read.
  };
  struct Post {
    std::byte* staging = nullptr;  ///< A copy of the range, for want of shared memory.
    SharedAddress answer_at = 0;   ///< Where the peer wants it.
    std::uint32_t answers = 0;     ///< To which message of the peer it is the answer.
    bool is_answer = false;
    bool is_written = false;  ///< By the pass before it.
    bool is_out = false;      ///< The peer has been told, and is to say when it has read it.
  };

  Call call;
  std::shared_ptr<WorkState> work;  ///< Null: somebody waits for `done`.
  bool active = false;
  bool done = false;
  bool failed = false;
  std::size_t element = 1;  ///< Bytes.
  Clock::time_point started;
  Clock::time_point until;

  std::uint64_t begun = 0;  ///< `Ticks`, where the run is recorded.
  PhaseTimes phase_times;   ///< There, too.

  std::size_t unfinished = 0;          ///< Tasks.
  std::vector<std::uint32_t> missing;  ///< By task: as in the program, less what has come.
  std::vector<std::uint64_t> ready;    ///< Urgencies of tasks that can be run: a heap.
  std::vector<Arrival> arrivals;       ///< By input.
  std::vector<Post> posts;             ///< By task.
  std::size_t posts_out = 0;
  std::vector<std::uint32_t> unstaged;  ///< Posts that wait for staging memory.
  std::vector<Transfer> transfers;      ///< By slot.
  std::vector<std::byte*> blocks;       ///< By slot: what a `net_reduce` receives into.
  std::vector<std::uint32_t> transferring;
  std::vector<std::uint32_t> unsent;  ///< Sends through the network that wait for their turn.
  std::size_t sending = 0;
  std::optional<Clock::time_point>
      flush_until;  ///< At the end; it may need a peer that is not in the library.
  std::size_t next_net_reduce = 0;
  std::size_t receiving_blocks = 0;

  Stores stores = Stores::automatic;
  bool input_was_copied = false;  ///< To where the output is.
  bool all_in_work = false;       ///< The output as well, until the end.
  std::shared_ptr<std::byte> scratch;
  std::size_t scratch_bytes = 0;
  std::shared_ptr<std::byte> work_memory;
  std::size_t work_bytes = 0;

  [[nodiscard]] const PreparedProgram& program() const noexcept { return *call.program; }
  [[nodiscard]] const Task& task(std::uint32_t index) const noexcept { return call.program->tasks()[index]; }
  [[nodiscard]] MessageTag tag(std::uint32_t message) const noexcept {
    return {call.channel(), static_cast<std::uint16_t>(call.sequence), message, call.fingerprint};
  }
  [[nodiscard]] std::size_t bytes_of(const Task& task) const noexcept { return task.size() * element; }

  /// Where a range is to be written.
  [[nodiscard]] std::byte* target(std::size_t begin) const noexcept {
    const std::size_t count = call.program->count();
    if (begin >= count) return scratch.get() + (begin - count) * element;
    const bool in_output = begin >= call.buffers.begin && begin < call.buffers.end && !all_in_work;
    return in_output ? call.buffers.output + begin * element : work_memory.get() + begin * element;
  }
  /// Where it is to be read.
  [[nodiscard]] const std::byte* source(std::size_t begin, bool is_input) const noexcept {
    if (is_input && !input_was_copied) return call.buffers.input + begin * element;
    return target(begin);
  }

  void make_ready(std::uint32_t index) {
    ready.push_back(call.program->urgency(index));
    std::push_heap(ready.begin(), ready.end(), std::greater<>());
  }
  [[nodiscard]] std::uint32_t take_ready() {
    std::pop_heap(ready.begin(), ready.end(), std::greater<>());
    const auto index = static_cast<std::uint32_t>(ready.back());
    ready.pop_back();
    return index;
  }
};

}  // namespace ddl::collectives
