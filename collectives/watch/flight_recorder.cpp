#include "collectives/watch/flight_recorder.hpp"

#include <fmt/format.h>

#include "ddl/topology/as_index.hpp"

namespace ddl::collectives {
namespace {

// Bits of FlightTape::Slot::about, lowest first: communicator (16), root + 1 (24), type (8), op (8), purpose
// (6), begun, failed.
constexpr int root_shift = 16;
constexpr int type_shift = 40;
constexpr int op_shift = 48;
constexpr int purpose_shift = 56;
constexpr std::uint64_t begun_bit = std::uint64_t{1} << 62;
constexpr std::uint64_t failed_bit = std::uint64_t{1} << 63;
constexpr std::uint64_t byte_mask = 0xff;
constexpr std::uint64_t root_mask = 0xff'ffff;
constexpr std::uint64_t purpose_mask = 0x3f;

std::uint64_t about(const CallId& call) noexcept {
  return std::uint64_t{call.communicator} | static_cast<std::uint64_t>(call.root + 1) << root_shift |
         static_cast<std::uint64_t>(call.type) << type_shift |
         static_cast<std::uint64_t>(call.op) << op_shift |
         static_cast<std::uint64_t>(call.purpose) << purpose_shift;
}

bool has_op(const CallName& name) noexcept {
  return name == "all_reduce" || name == "reduce_scatter" || name == "reduce";
}

}  // namespace

std::string_view to_string(CallPurpose purpose) noexcept {
  constexpr std::array<std::string_view, 7> names = {"",
                                                     "gradient reducer: weight",
                                                     "gradient reducer: bucket",
                                                     "gradient reducer: norm",
                                                     "gradient reducer: order of gradients",
                                                     "gradient reducer: absent gradients",
                                                     "gradient reducer: agreement on errors"};
  return names[as_index(purpose)];
}

const char* to_string(FlightRecord::State state) noexcept {
  constexpr std::array names = {"called", "begun", "finished", "failed"};
  return names[as_index(state)];
}

std::string CallId::describe() const {
  std::string text = fmt::format("{} #{}", name.view(), sequence);
  if (communicator >= first_on_devices) {
    text += " on devices";
    if (communicator > first_on_devices) text += fmt::format(" {}", communicator - first_on_devices);
  } else if (communicator != 0) {
    text += fmt::format(" of communicator {}", communicator);
  }
  if (name == "barrier") return text;
  text += fmt::format(" ({}{} {}, {} bytes", has_op(name) ? fmt::format("{} of ", to_string(op)) : "", count,
                      to_string(type), count * size_of(type));
  if (root >= 0) text += fmt::format(", root {}", root);
  if (purpose != CallPurpose::user) text += fmt::format("; {}", to_string(purpose));
  return text + ")";
}

std::string to_text(const std::vector<FlightRecord>& records) {
  constexpr double milliseconds = 1e3;
  std::string text;
  for (const FlightRecord& record : records) {
    text +=
        fmt::format("{:.6f} s ago: {}, {}", record.called_ago, record.describe(), to_string(record.state));
    if (record.is_over()) {
      text += fmt::format(" after {:.3g} ms", (record.called_ago - record.ended_ago) * milliseconds);
    }
    text += '\n';
  }
  return text;
}

FlightRecorder::FlightRecorder(FlightTape* tape) : tape_(tape) {
  if (tape_ != nullptr) return;
  own_ = std::make_unique<FlightTape>();
  tape_ = own_.get();
}

FlightRecorder::~FlightRecorder() = default;

std::uint64_t FlightRecorder::called(const CallId& call) noexcept {
  constexpr auto relaxed = std::memory_order_relaxed;
  const std::uint64_t number = 1 + tape_->last.fetch_add(1, relaxed);
  FlightTape::Slot& slot = tape_->slots[number % FlightTape::most_records];
  const CallName::Words name = call.name.words();
  slot.number.store(0, relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  slot.sequence.store(call.sequence, relaxed);
  slot.count.store(call.count, relaxed);
  slot.about.store(about(call), relaxed);
  slot.called.store(Ticks::now(), relaxed);
  slot.ended.store(0, relaxed);
  slot.name[0].store(name[0], relaxed);
  slot.name[1].store(name[1], relaxed);
  slot.number.store(number, std::memory_order_release);
  return number;
}

void FlightRecorder::begun(std::uint64_t number) noexcept {
  if (FlightTape::Slot* slot = slot_of(number)) slot->about.fetch_or(begun_bit, std::memory_order_relaxed);
}

FlightRecorder::Times FlightRecorder::over(std::uint64_t number, bool failed) noexcept {
  const std::uint64_t now = Ticks::now();
  FlightTape::Slot* const slot = slot_of(number);
  if (slot == nullptr) return {now, now};
  if (failed) slot->about.fetch_or(failed_bit, std::memory_order_relaxed);
  slot->ended.store(now, std::memory_order_relaxed);
  return {slot->called.load(std::memory_order_relaxed), now};
}

std::uint16_t FlightRecorder::add_on_devices(std::function<void()> notice) {
  const std::lock_guard lock(mutex_);
  on_devices_[next_on_devices_] = std::move(notice);
  return next_on_devices_++;
}

void FlightRecorder::remove_on_devices(std::uint16_t number) {
  const std::lock_guard lock(mutex_);
  on_devices_.erase(number);
}

std::vector<FlightRecord> FlightRecorder::records() const {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, notice] : on_devices_) notice();
  }
  return records_of(*tape_);
}

std::vector<FlightRecord> FlightRecorder::records_of(const FlightTape& tape) const {
  constexpr auto relaxed = std::memory_order_relaxed;
  std::vector<FlightRecord> result;
  const std::uint64_t last = tape.last.load(std::memory_order_acquire);
  const std::uint64_t now = Ticks::now();
  const double seconds = ticks_.seconds_each();
  const auto ago = [&](std::uint64_t then) {
    return then >= now ? 0 : static_cast<double>(now - then) * seconds;
  };
  const std::uint64_t most = FlightTape::most_records;
  for (std::uint64_t number = last > most ? last - most + 1 : 1; number <= last; ++number) {
    const FlightTape::Slot& slot = tape.slots[number % most];
    if (slot.number.load(std::memory_order_acquire) != number) continue;
    const std::uint64_t bits = slot.about.load(relaxed);
    const std::uint64_t called = slot.called.load(relaxed);
    const std::uint64_t ended = slot.ended.load(relaxed);
    FlightRecord record;
    record.name = CallName(CallName::Words{slot.name[0].load(relaxed), slot.name[1].load(relaxed)});
    record.sequence = slot.sequence.load(relaxed);
    record.count = slot.count.load(relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (slot.number.load(relaxed) != number) continue;
    record.communicator = static_cast<std::uint16_t>(bits);
    record.root = static_cast<int>(bits >> root_shift & root_mask) - 1;
    record.type = static_cast<DataType>(bits >> type_shift & byte_mask);
    record.op = static_cast<ReduceOp>(bits >> op_shift & 0xf);
    record.purpose = static_cast<CallPurpose>(bits >> purpose_shift & purpose_mask);
    record.state = (bits & failed_bit) != 0  ? FlightRecord::State::failed
                   : ended != 0              ? FlightRecord::State::finished
                   : (bits & begun_bit) != 0 ? FlightRecord::State::begun
                                             : FlightRecord::State::called;
    record.called_ago = ago(called);
    record.ended_ago = ended == 0 ? 0 : ago(ended);
    result.push_back(std::move(record));
  }
  return result;
}

}  // namespace ddl::collectives
