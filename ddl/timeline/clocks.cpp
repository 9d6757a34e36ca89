#include "ddl/timeline/clocks.hpp"

#include <algorithm>
#include <cmath>

#include "ddl/timeline.hpp"

namespace ddl {
namespace {

using collectives::CommunicatorImpl;
using topology::StepKind;

constexpr std::size_t most_bytes = std::size_t{1} << 20;

using Program = std::shared_ptr<const collectives::PreparedProgram>;

/// A program of one message of `count` elements.
Program one_message(const CommunicatorImpl& communicator, StepKind kind, int peer, std::size_t count,
                    std::size_t element_bytes) {
  topology::Program program;
  program.steps.push_back({.kind = kind, .peer = peer, .begin = 0, .end = count});
  return communicator.prepare(std::move(program), count, element_bytes);
}

/// Sends `bytes` of `buffer` from `sender` to rank 0. Collective.
void send_piece(CommunicatorImpl& communicator, int sender, std::string& buffer, std::size_t bytes) {
  const int rank = communicator.rank();
  Program program;
  if (rank == 0) program = one_message(communicator, StepKind::receive, sender, bytes, 1);
  if (rank == sender) program = one_message(communicator, StepKind::send, 0, bytes, 1);
  communicator.run("gather_texts", std::move(program), buffer.data(), bytes, DataType::u8, ReduceOp::max);
}

constexpr int trips_each = 24;
using Answer = std::array<std::int64_t, 2>;  // RoundTrip's `came` and `answered`

/// Measures round trips from rank 0 to `other` and back. Collective; only these two ranks exchange messages.
std::vector<RoundTrip> round_trips(CommunicatorImpl& communicator, int other) {
  const int rank = communicator.rank();
  Program out, back;
  if (rank == 0 || rank == other) {
    const int peer = rank == 0 ? other : 0;
    const auto send = one_message(communicator, StepKind::send, peer, Answer().size(), sizeof(std::int64_t));
    const auto receive =
        one_message(communicator, StepKind::receive, peer, Answer().size(), sizeof(std::int64_t));
    out = rank == 0 ? send : receive;
    back = rank == 0 ? receive : send;
  }
  std::vector<RoundTrip> trips;
  for (int i = 0; i < trips_each; ++i) {
    Answer data{};
    const auto run = [&](const Program& program) {
      communicator.run("clock", program, data.data(), data.size(), DataType::i64, ReduceOp::max);
    };
    RoundTrip trip;
    trip.sent = Timeline::now_ns();
    run(out);
    data[0] = data[1] = Timeline::now_ns();
    run(back);
    trip.returned = Timeline::now_ns();
    trip.came = data[0];
    trip.answered = data[1];
    trips.push_back(trip);
  }
  return trips;
}

}  // namespace

std::vector<std::int64_t> all_values(CommunicatorImpl& communicator, std::int64_t own) {
  const auto ranks = as_index(communicator.size());
  std::vector<std::int64_t> values(ranks, std::numeric_limits<std::int64_t>::min());
  values[as_index(communicator.rank())] = own;
  if (ranks == 1) return values;
  auto program = communicator.prepare(
      topology::lower_barrier(communicator.size(), communicator.rank(), ranks), ranks, sizeof own);
  communicator.run("all_values", std::move(program), values.data(), ranks, DataType::i64, ReduceOp::max);
  return values;
}

void gather_texts(CommunicatorImpl& communicator, std::string_view text,
                  const std::function<void(int rank, std::string_view piece)>& take) {
  const std::vector<std::int64_t> sizes = all_values(communicator, static_cast<std::int64_t>(text.size()));
  const int own = communicator.rank();
  std::string buffer(most_bytes, '\0');
  for (int rank = 0; rank < communicator.size(); ++rank) {
    const auto all = as_index(sizes[as_index(rank)]);
    for (std::size_t begin = 0; begin < all; begin += most_bytes) {
      const std::size_t bytes = std::min(most_bytes, all - begin);
      if (rank == own) std::memcpy(buffer.data(), text.data() + begin, bytes);
      if (rank != 0) send_piece(communicator, rank, buffer, bytes);
      if (own == 0) take(rank, std::string_view(buffer).substr(0, bytes));
    }
  }
}

TickClock::Moment TickClock::now() noexcept {
  constexpr int tries = 5;
  Moment best{};
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (int i = 0; i < tries; ++i) {
    const std::int64_t before = Timeline::now_ns();
    const std::uint64_t ticks = collectives::Ticks::now();
    const std::int64_t width = Timeline::now_ns() - before;
    if (width >= least) continue;
    least = width;
    best = {ticks, before + width / 2};
  }
  return best;
}

std::int64_t TickClock::nanoseconds(std::uint64_t ticks) const noexcept {
  if (last_.ticks <= first_.ticks) return first_.nanoseconds;
  const double each = static_cast<double>(last_.nanoseconds - first_.nanoseconds) /
                      static_cast<double>(last_.ticks - first_.ticks);
  const auto since = static_cast<double>(static_cast<std::int64_t>(ticks - first_.ticks));
  return first_.nanoseconds + std::llround(since * each);
}

ClockOffset offset_by(std::span<const RoundTrip> trips) {
  const RoundTrip& best = *std::ranges::min_element(trips, {}, &RoundTrip::under_way);
  return {.at = best.came,
          .ahead = ((best.came - best.sent) + (best.answered - best.returned)) / 2,
          .error = std::max<std::int64_t>((best.under_way() + 1) / 2, 0)};
}

void JobClock::compare(CommunicatorImpl& communicator) {
  const auto own = as_index(communicator.rank());
  if (!origin_) origin_ = all_values(communicator, Timeline::now_ns()).front();
  if (std::ranges::all_of(clock_of_, [](int rank) { return rank == 0; })) return;
  std::vector<std::int64_t> found(clock_of_.size() * 3);
  for (std::size_t rank = 1; rank < clock_of_.size(); ++rank) {
    if (clock_of_[rank] != static_cast<int>(rank)) continue;
    const std::vector<RoundTrip> trips = round_trips(communicator, static_cast<int>(rank));
    if (own != 0) continue;
    const ClockOffset offset = offset_by(trips);
    std::ranges::copy(std::array{offset.at, offset.ahead, offset.error},
                      found.begin() + static_cast<std::ptrdiff_t>(rank * 3));
  }
  communicator.run(collectives::broadcast_request(communicator.place(), found.data(), found.data(),
                                                  found.size(), DataType::i64, 0));
  const auto clock = as_index(clock_of_[own]) * 3;
  offsets_.push_back({found[clock], found[clock + 1], found[clock + 2]});
}

std::int64_t JobClock::job_time(std::int64_t own) const noexcept {
  const std::int64_t origin = origin_.value_or(0);
  if (offsets_.empty()) return own - origin;
  const auto after = std::ranges::upper_bound(offsets_, own, {}, &ClockOffset::at);
  if (after == offsets_.begin()) return own - after->ahead - origin;
  const ClockOffset& before = *std::prev(after);
  if (after == offsets_.end()) return own - before.ahead - origin;
  const double part = static_cast<double>(own - before.at) / static_cast<double>(after->at - before.at);
  const auto change = static_cast<double>(after->ahead - before.ahead);
  return own - before.ahead - std::llround(change * part) - origin;
}

std::int64_t JobClock::error() const noexcept {
  std::int64_t worst = 0;
  for (const ClockOffset& offset : offsets_) worst = std::max(worst, offset.error);
  return worst;
}

}  // namespace ddl
