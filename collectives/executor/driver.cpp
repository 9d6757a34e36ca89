#include "collectives/executor/driver.hpp"

#include <fmt/format.h>

#include <fstream>
#include <thread>

#include "collectives/kernels/reduce.hpp"
#include "topology/refuse.hpp"

namespace ddl::collectives {
namespace {

constexpr std::size_t receiving_blocks_per_slab = 32;
constexpr std::size_t parcels_per_slab = 64;
/// How long a call waits before it is compared with those of the host's other ranks.
constexpr std::chrono::seconds first_comparison{1};
/// Longer messages in shared memory are read in place.
constexpr std::size_t most_eager_bytes = 1024;

std::shared_ptr<std::byte> plain_bytes(std::size_t bytes) {
  std::shared_ptr<std::byte> data = process_memory(bytes);
  if (!data) throw std::bad_alloc();
  return data;
}

/// `usual`: where the system does not say.
std::size_t cache_bytes(int level, std::size_t usual) {
  // sysconf returns the sum of all of a processor's third-level caches.
  std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/size", level));
  std::size_t kib = 0;
  return file >> kib ? kib << 10 : usual;
}

/// The part of the cores' shared cache that a host's ranks may count on. Other processes and virtual machines
/// use it too: with half of it in use, streaming stores were 1.5 times as fast.
std::size_t usable_cache_bytes() { return cache_bytes(3, std::size_t{32} << 20) / 2; }

}  // namespace

Driver::Driver(const EngineSettings& settings, FlightRecorder& recorder, bool has_thread)
    : settings_(settings),
      recorder_(recorder),
      run_(settings_.run.get()),
      memory_(settings_.memory.get()),
      bell_(&own_bell_),
      core_cache_bytes_(cache_bytes(2, std::size_t{1} << 20)),
      staging_(topology::message_bytes.inside_host, core_cache_bytes_,
               [this](std::size_t bytes) { return shared_bytes(bytes); }),
      receiving_(topology::message_bytes.between_hosts, receiving_blocks_per_slab, plain_bytes),
      parcels_(memory_ == nullptr ? sizeof(Notice) : memory_->parcel_bytes(), parcels_per_slab, plain_bytes),
      eager_bytes_(memory_ == nullptr ? 0 : std::min(memory_->parcel_bytes(), most_eager_bytes)),
      cache_bytes_(usable_cache_bytes()),
      has_thread_(has_thread),
      spins_(settings_.spins) {
  if (memory_ != nullptr) {
    const auto own = std::ranges::find(settings_.members, settings_.rank);
    if (own == settings_.members.end()) {
      throw Error(ErrorCode::internal, "this rank is not among the members of its host's memory");
    }
    self_ = static_cast<int>(own - settings_.members.begin());
    bell_ = &memory_->member(self_).bell;
    links_.resize(settings_.members.size());
    cores_.assign(settings_.members.size(), -1);
    left_before_.reserve(links_.size());  // so that the first sleep, long after warm-up, allocates nothing
  }
  if (settings_.network == nullptr || settings_.network->event_descriptor() < 0) return;
  if (memory_ != nullptr) {
    event_ = memory_->event_descriptor(self_);
  } else {
    own_event_ = new_event();
    event_ = own_event_.get();
  }
}

std::shared_ptr<std::byte> Driver::shared_bytes(std::size_t bytes) {
  if (memory_ == nullptr) return plain_bytes(bytes);
  std::shared_ptr<std::byte> data = memory_->allocate(self_, bytes);
  if (data) return data;
  fail_with(ErrorCode::transport, "the host's shared memory has no room for {} more bytes of working memory",
            bytes);
}

MemberLink& Driver::open_link(int member) {
  return *(links_[as_index(member)] =
               std::make_unique<MemberLink>(*memory_, self_, member, settings_.members[as_index(member)]));
}

Network* Driver::network_of(const OperationState& operation) const noexcept {
  return operation.program().mpi_alone() ? settings_.mpi.get() : settings_.network.get();
}

OperationState* Driver::find(const MessageTag& tag) noexcept {
  for (OperationState* operation : operations_) {
    if (operation->call().channel() == tag.communicator &&
        static_cast<std::uint16_t>(operation->call().sequence) == tag.call) {
      return operation;
    }
  }
  return nullptr;
}

OperationState& Driver::begin(const Call& call, std::shared_ptr<WorkState> work) {
  OperationState& operation = free_operation();
  operation.work = std::move(work);
  try {
    operation.keep(call);
    place(operation, operation.kept);
  } catch (...) {  // no memory is left
    operation.begun = Ticks::now();
    operations_.push_back(&operation);  // so that `fail` ends it
    throw;
  }
  begin_from(operation, 0);
  return operation;
}

OperationState& Driver::free_operation() {
  if (free_operations_.empty()) {
    all_operations_.push_back(std::make_unique<OperationState>());
    free_operations_.reserve(all_operations_.size());
    operations_.reserve(all_operations_.size());
    free_operations_.push_back(all_operations_.back().get());
  }
  OperationState& operation = *free_operations_.back();
  free_operations_.pop_back();
  return operation;
}

/// Determines where the call's elements are. The call does not run yet.
void Driver::place(OperationState& operation, Call& call) {
  operation.placed = &call;
  const PreparedProgram& program = *call.program;
  operation.element = size_of(call.type);
  operation.copies.assign(program.copies().size(), {});
  if (operation.scratch_bytes < program.scratch() * operation.element) {
    operation.scratch.reset();
    operation.scratch_bytes = program.scratch() * operation.element;
    operation.scratch = shared_bytes(operation.scratch_bytes);
  }
  place_elements(operation);
  // Bytes that the members of the host access together; a single run touches only a part of them.
  const std::size_t bytes = program.count() * operation.element;
  const std::size_t touched = (program.members().size() + 1) * 2 * bytes;
  const bool in_place = call.buffers.input == call.buffers.output;
  // A reduction has read the places of its output a short while ago if it is in place.
  operation.stores =
      touched <= cache_bytes_ || (in_place && program.reduces()) ? Stores::automatic : Stores::streaming;
  operation.delivers_sent =
      !in_place && !operation.input_was_copied && !operation.all_in_work && bytes > core_cache_bytes_;
}

/// Begins the call after the runs before `step`, which are complete.
void Driver::begin_from(OperationState& operation, std::uint32_t step) {
  set_up(operation);
  if (run_ != nullptr) note_begun(operation);
  operations_.push_back(&operation);
  if (!operation.call().compares) recorder_.begun(operation.call().record);
  for (const int member : operation.program().members()) {
    MemberLink& peer = link(member);
    if (peer.listeners++ == 0) listened_.push_back(&peer);
  }
  for (std::uint32_t run = 0; run < step; run = operation.program().end_of_run(run)) {
    if (run_ != nullptr) operation.phase_times.begun(operation.step(run));
    complete(operation, run);
    operation.missing[run] = 0;
  }
  if (step != 0) {
    std::erase_if(operation.ready,
                  [&](std::uint64_t urgency) { return static_cast<std::uint32_t>(urgency) < step; });
    std::make_heap(operation.ready.begin(), operation.ready.end(), std::greater<>());
  }
  post_receives(operation);
  take_early(operation);
  run_ready(operation);  // before messages are taken that have arrived: peers wait for this rank's
}

void Driver::set_up(OperationState& operation) {
  const PreparedProgram& program = operation.program();
  const std::chrono::milliseconds deadline = operation.call().deadline;
  operation.active = true;
  operation.done = false;
  operation.failed = false;
  operation.started = Clock::now();
  operation.until =
      deadline == std::chrono::milliseconds::max() ? Clock::time_point::max() : operation.started + deadline;
  const bool is_comparable = memory_ != nullptr && operation.call().record != 0;
  operation.compare_at = is_comparable ? operation.started + first_comparison : Clock::time_point::max();
  operation.unfinished = program.runs();
  operation.missing.assign(program.missing().begin(), program.missing().end());
  operation.ready.clear();
  operation.ready.reserve(program.runs());
  for (const std::uint32_t run : program.first()) operation.ready.push_back(program.urgency(run));
  operation.arrivals.assign(program.arrivals(), {});
  operation.posts.assign(program.posts(), {});
  operation.posts_out = 0;
  operation.unstaged.clear();
  operation.transfers.assign(program.transfers(), {});
  operation.blocks.assign(program.transfers(), nullptr);
  operation.transferring.clear();
  operation.unsent.clear();
  operation.sending = 0;
  operation.sent_by.reset();
  operation.next_net_reduce = 0;
  operation.receiving_blocks = 0;
}

void Driver::place_elements(OperationState& operation) {
  const PreparedProgram& program = operation.program();
  const Buffers& buffers = operation.call().buffers;
  operation.input_was_copied = false;
  operation.all_in_work = false;
  operation.delivered.clear();
  const bool all_in_output = buffers.begin == 0 && buffers.end >= program.count();
  if (!all_in_output) {
    const PreparedProgram::Writes writes = program.writes_of(buffers.begin, buffers.end);
    operation.all_in_work = writes == PreparedProgram::Writes::across;
    if (writes != PreparedProgram::Writes::inside) {
      const std::size_t bytes = program.count() * operation.element;
      if (operation.work_bytes < bytes) {
        operation.work_memory.reset();
        operation.work_bytes = bytes;
        operation.work_memory = shared_bytes(bytes);
      }
    }
  }
  const bool in_place = buffers.input == buffers.output && all_in_output;
  if (in_place || !program.reads_mixtures()) return;
  const std::size_t end = std::min(buffers.input_end, program.count());
  const auto copy = [&](std::size_t from, std::size_t to) {
    if (from >= to) return;
    copy_bytes(operation.target(from), buffers.input + from * operation.element,
               (to - from) * operation.element);
  };
  // The output and the work memory are different places.
  copy(buffers.input_begin, std::min(end, buffers.begin));
  copy(std::max(buffers.input_begin, buffers.begin), std::min(end, buffers.end));
  copy(std::max(buffers.input_begin, buffers.end), end);
  operation.input_was_copied = true;
}

/// Copies results that the program left elsewhere to the output.
void Driver::deliver(OperationState& operation) {
  const PreparedProgram& program = operation.program();
  const Buffers& buffers = operation.call().buffers;
  const auto copy = [&](const std::byte* from, std::size_t begin, std::size_t end) {
    const std::size_t offset = begin * operation.element;
    operation.copy_out(buffers.output + offset, from + offset, (end - begin) * operation.element,
                       CopyBy::any);
  };
  if (operation.all_in_work) {
    copy(operation.work_memory.get(), buffers.begin, std::min(buffers.end, program.count()));
  }
  if (buffers.input != buffers.output && !operation.input_was_copied) {
    std::ranges::sort(operation.delivered, {}, &PreparedProgram::Range::begin);
    for (const PreparedProgram::Range& range : program.unwritten()) {
      std::size_t begin = std::max({range.begin, buffers.begin, buffers.input_begin});
      const std::size_t end = std::min({range.end, buffers.end, buffers.input_end});
      for (const PreparedProgram::Range& done : operation.delivered) {
        if (done.end <= begin || done.begin >= end) continue;
        if (begin < done.begin) copy(buffers.input, begin, done.begin);
        begin = done.end;
      }
      if (begin < end) copy(buffers.input, begin, end);
    }
  }
}

void Driver::finish(OperationState& operation) {
  deliver(operation);
  std::erase(operations_, &operation);
  for (const int member : operation.program().members()) {
    MemberLink& peer = link(member);
    if (--peer.listeners == 0) std::erase(listened_, &peer);
  }
  operation.active = false;
  operation.done = true;
  const std::uint64_t ended =
      operation.call().compares ? 0 : recorder_.over(operation.call().record, false).ended;
  if (run_ != nullptr) note_over(operation, ended);
  if (const std::shared_ptr<WorkState> work = std::move(operation.work)) {
    give_back(operation);
    work->finish(std::nullopt);
  }
}

void Driver::give_back(OperationState& operation) {
  operation.kept.program.reset();
  free_operations_.push_back(&operation);
}

void Driver::fail(const Error& error) {
  // Operations are not given back: peers and the network may still use their memory.
  const std::vector<OperationState*> failed = std::exchange(operations_, {});
  for (OperationState* operation : failed) {
    operation->active = false;
    operation->done = true;
    operation->failed = true;
    recorder_.over(operation->call().record, true);
    if (run_ != nullptr) note_failed(*operation);
    if (operation->work) std::exchange(operation->work, nullptr)->finish(error);
  }
}

bool Driver::progress() {
  bool moved = memory_ != nullptr && drain();
  if (settings_.network && settings_.network->progress()) moved = true;
  if (settings_.mpi && settings_.mpi->progress()) moved = true;
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    OperationState& operation = *operations_[i];
    if (!operation.transferring.empty() && sweep_transfers(operation)) moved = true;
    if (stage_more(operation, false)) moved = true;
    if (run_ready(operation)) moved = true;
    if (operation.unfinished != 0 || !has_sent(operation)) continue;
    finish(operation);
    moved = true;
    --i;
  }
  return moved;
}

/// Whether everything that was sent has left this process, so that peers need not wait for this rank's next
/// call. That is left to the engine's thread if there is one. Without a thread it is bounded, because it may
/// need a peer that is not in the library.
bool Driver::has_sent(OperationState& operation) {
  constexpr auto longest = std::chrono::milliseconds(10);
  if (has_thread_ || operation.program().transfers() == 0) return true;
  if (!network_of(operation)->holds_back()) return true;
  if (!operation.sent_by) operation.sent_by = Clock::now() + longest;
  return Clock::now() >= *operation.sent_by;
}

std::uint64_t Driver::oldest_call(std::uint16_t communicator) const noexcept {
  std::uint64_t oldest = std::numeric_limits<std::uint64_t>::max() / 2;
  for (const OperationState* operation : operations_) {
    if (operation->call().communicator == communicator) oldest = std::min(oldest, operation->call().sequence);
  }
  return oldest;
}

void Driver::abandon() noexcept {
  if (settings_.network) settings_.network->abandon();
  if (settings_.mpi) settings_.mpi->abandon();
}

void Driver::interrupt() noexcept {
  interrupted_.store(true, std::memory_order_seq_cst);
  if (bell_->ring_loudly()) signal_event(event_);
}

void Driver::leave() {
  if (memory_ == nullptr) return;
  memory_->member(self_).left.store(1, std::memory_order_seq_cst);
  for (int member = 0; member < memory_->members(); ++member) memory_->ring_loudly(member);
  const Clock::time_point began = Clock::now();
  Naps naps = Naps::for_own();
  while (staging_.has_unread() && !(settings_.watch && settings_.watch->failed())) {
    std::string others;
    for (std::size_t i = 0; i < settings_.members.size(); ++i) {
      if (memory_->member(static_cast<int>(i)).left.load(std::memory_order_seq_cst) != 0) continue;
      others += (others.empty() ? "" : ", ") + rank_and_host(settings_.members[i]);
    }
    if (others.empty()) return;
    if (Clock::now() - began >= staging_deadline_) {
      fail_with(
          ErrorCode::timeout,
          "data of earlier collectives has not been read within {} ms by {}: all ranks must call the same "
          "collectives, in the same order",
          staging_deadline_.count(), others);
    }
    progress();  // a peer may wait for data that the network holds back
    std::this_thread::sleep_for(naps.next());
  }
}

}  // namespace ddl::collectives
