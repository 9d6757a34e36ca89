#include "ddl/topology/simulator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "ddl/error.hpp"
#include "ddl/hash.hpp"
#include "topology/simulator/critical_path.hpp"
#include "topology/simulator/event_queue.hpp"
#include "topology/simulator/max_min.hpp"
#include "topology/simulator/simulator_routes.hpp"
#include "topology/simulator/simulator_streams.hpp"

namespace ddl::topology {
namespace {

// Events this close, relative to the time, are one instant: sums of the same durations in different orders.
constexpr double one_instant = 1e-9;
constexpr double bytes_per_us = 1e3;  // in a GB/s
// Where hundreds of flows change each other's rates with every start and end, those are taken together that
// are no further apart than this part of a transfer's duration. All of them late, so nothing gets faster.
constexpr double lateness = 5e-4;
constexpr std::uint64_t work_for_a_transfer = 64;  // rates looked at, on average, above which that is done
constexpr double never = std::numeric_limits<double>::infinity();

void require(bool condition, std::string_view name, double found, std::string_view expected) {
  if (condition) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("simulation: {}: found {}, expected {}", name, found, expected));
}

void check_options(const SimulationOptions& options, int ranks) {
  constexpr double most = 1e12;
  const auto is_from = [](double value, double least) { return value >= least && value <= most; };
  require(is_from(options.cost.step_overhead, 0), "step_overhead", options.cost.step_overhead,
          "0 us or more");
  require(is_from(options.cost.cpu_network_message, 0), "cpu_network_message",
          options.cost.cpu_network_message, "0 us or more");
  require(options.cost.cpu_reduction > 0, "cpu_reduction", options.cost.cpu_reduction, "more than 0 GB/s");
  require(options.cost.gpu_reduction > 0, "gpu_reduction", options.cost.gpu_reduction, "more than 0 GB/s");
  require(options.element_bytes >= 1 && options.element_bytes <= 1024, "element_bytes",
          static_cast<double>(options.element_bytes), "1 to 1024");
  require(is_from(options.jitter, 0), "jitter", options.jitter, "0 or more");
  for (const Straggler& straggler : options.stragglers) {
    require(straggler.rank >= 0 && straggler.rank < ranks, "straggler's rank", straggler.rank,
            fmt::format("0 to {}", ranks - 1));
    require(is_from(straggler.factor, 1), "straggler's factor", straggler.factor, "1 or more");
    require(is_from(straggler.start_us, 0), "straggler's start", straggler.start_us, "0 us or more");
  }
}

/// One run of a schedule.
class Run {
 public:
  Run(RouteTable& routes, const Schedule& schedule, const SimulationOptions& options)
      : schedule_(schedule),
        options_(options),
        streams_(schedule),
        dependencies_(schedule),
        topology_(routes.topology()),
        max_min_(route_streams(routes)),
        pending_(streams_.steps()),
        has_come_(streams_.steps(), false),
        start_(streams_.steps(), -1),
        end_(streams_.steps(), -1),
        joined_(schedule.ranks.size(), -1),
        ranks_(schedule.ranks.size()),
        flow_ends_(states_.size()) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      ranks_[rank].device = routes.device_kind(static_cast<int>(rank));
      ranks_[rank].first_step = streams_.first_step(static_cast<int>(rank));
      ranks_[rank].core = core_of_[rank];
      const auto channel = routes.core_channel(static_cast<int>(rank));
      if (!channel) continue;
      ranks_[rank].core_bytes_per_us =
          topology_.links()[static_cast<std::size_t>(link_of(*channel))].bandwidth * bytes_per_us;
    }
    find_lent();
    for (const Straggler& straggler : options.stragglers) {
      Rank& rank = ranks_[static_cast<std::size_t>(straggler.rank)];
      rank.factor = std::max(rank.factor, straggler.factor);
      rank.start = std::max(rank.start, straggler.start_us);
    }
  }

  Simulation run() {
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      const auto& table = dependencies_.of(rank);
      for (std::size_t step = 0; step < table.steps(); ++step) {
        pending_[ranks_[static_cast<std::size_t>(rank)].first_step + step] = table.number_before(step);
      }
      events_.push(ranks_[static_cast<std::size_t>(rank)].start,
                   {EventKind::join, static_cast<std::uint32_t>(rank), 0});
    }
    for (;;) {
      const double first = std::min({events_.next(), flow_ends_.next(), settle_at_, end_late_at_});
      if (first == never) break;
      handle_instant(first * (1 + one_instant));
    }
    if (completed_ != streams_.steps()) report_deadlock();
    return results();
  }

 private:
  enum class EventKind : std::uint8_t { join, issued, arrived, complete };
  struct Event {
    EventKind kind;
    std::uint32_t subject;  // rank; stream; rank; rank
    std::uint32_t step;     // of `arrived` and `complete`
  };
  struct Candidate {
    std::uint32_t step;
    std::uint32_t stream;
    bool operator>(const Candidate& other) const noexcept { return step > other.step; }
  };
  struct Rank {
    NodeKind device = NodeKind::cpu;
    double factor = 1;
    double start = 0;
    std::uint32_t first_step = 0;
    bool has_joined = false;
    bool is_issuing = false;
    bool may_issue = false;             // listed in issuers_
    std::vector<Candidate> candidates;  // a heap, lowest step first
    // Where reductions compete with transfers: the flow that stands for them, one at a time.
    std::uint32_t core = Streams::none;
    double core_bytes_per_us = 0;
    std::deque<std::uint32_t> to_reduce;  // steps; the first one flows
  };
  struct StreamState {
    std::uint32_t next = 0;  // its first transfer that has not left
    bool is_offered = false;
    bool is_through = false;  // all bytes have left, but the flow ends late
    double latency = 0;
    double left = 0;  // bytes of the flow at `since`
    double rate = 0;
    double since = 0;
    double began = 0;         // the flow
    std::uint64_t bytes = 0;  // of all that have left
    double volume = 0;        // what they counted as
    RouteTable::Route route;
  };

  MaxMin route_streams(RouteTable& routes) {
    const auto streams = streams_.all();
    states_.resize(streams.size());
    for (std::size_t i = 0; i < streams.size(); ++i) {
      states_[i].next = streams[i].first;
      states_[i].route = routes.between(streams[i].from, streams[i].to);
      states_[i].latency = states_[i].route.latency;
    }
    std::vector<std::span<const Channel>> channels;
    channels.reserve(streams.size());
    for (const StreamState& state : states_) channels.push_back(routes.channels(state.route));
    core_channels_.reserve(schedule_.ranks.size());
    for (int rank = 0; rank < routes.ranks(); ++rank) {
      core_of_.push_back(Streams::none);
      const auto channel = routes.core_channel(rank);
      if (!channel) continue;
      core_of_.back() = static_cast<std::uint32_t>(states_.size());
      rank_of_core_.push_back(rank);
      core_channels_.push_back(*channel);
      channels.push_back(std::span(&core_channels_.back(), 1));
      states_.emplace_back();
    }
    Sharing sharing = share_channels(topology_, channels);
    channels_ = std::move(channels);
    return {std::move(sharing.capacities), std::move(sharing.paths)};
  }

  [[nodiscard]] const Step& step_of(int rank, std::uint32_t step) const {
    return schedule_.ranks[static_cast<std::size_t>(rank)].steps[step];
  }
  [[nodiscard]] std::uint64_t bytes_of(const Step& step) const {
    return step.size() * (step.narrow ? size_of(schedule_.ranks.front().wire) : options_.element_bytes);
  }
  Rank& rank_at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] double reduction_us(const Rank& rank, const Step& step) const {
    return rank.factor * options_.cost.reduction_us(rank.device, static_cast<double>(bytes_of(step)));
  }

  void handle_instant(double latest) {
    collect_due(latest);
    for (const std::uint32_t stream : due_flows_) {
      if (is_late_) {
        end_late(stream);
      } else {
        end_flow(stream);
      }
    }
    if (std::min(settle_at_, end_late_at_) <= latest) {
      for (const std::uint32_t stream : late_flows_) end_flow(stream);
      late_flows_.clear();
      settle_at_ = now_;
      end_late_at_ = never;
    }
    make_progress();
    for (const Event& event : due_events_) {
      handle(event);
      make_progress();
    }
    for (const int rank : issuers_) issue(rank);
    issuers_.clear();
    if (settle_at_ <= now_) settle();
  }

  void collect_due(double latest) {
    due_flows_.clear();
    due_events_.clear();
    while (flow_ends_.next() <= latest) {
      now_ = std::max(now_, flow_ends_.next());
      due_flows_.push_back(flow_ends_.pop());
    }
    while (events_.next() <= latest) {
      now_ = std::max(now_, events_.next());
      due_events_.push_back(events_.pop().payload);
    }
    for (const double due : {settle_at_, end_late_at_}) {
      if (due <= latest) now_ = std::max(now_, due);
    }
  }

  void handle(const Event& event) {
    switch (event.kind) {
      case EventKind::join:
        join(static_cast<int>(event.subject));
        break;
      case EventKind::issued: {
        const int from = streams_.all()[event.subject].from;
        rank_at(from).is_issuing = false;
        note_issuer(from);
        start_flow(event.subject);
        break;
      }
      case EventKind::arrived:
        reduce(static_cast<int>(event.subject), event.step);
        break;
      case EventKind::complete:
        complete(static_cast<int>(event.subject), event.step);
        break;
    }
  }

  void join(int rank) {
    Rank& state = rank_at(rank);
    state.has_joined = true;
    joined_[static_cast<std::size_t>(rank)] = now_;
    const auto& table = dependencies_.of(rank);
    for (std::uint32_t step = 0; step < table.steps(); ++step) {
      if (table.number_before(step) == 0) ready_.push_back({rank, step});
    }
  }

  void complete(int rank, std::uint32_t step) {
    end_[rank_at(rank).first_step + step] = now_;
    ++completed_;
    completions_.push_back({rank, step});
  }

  /// What completions of this instant allow: a list rather than recursion, because chains can be long.
  void make_progress() {
    while (!completions_.empty() || !ready_.empty()) {
      if (!ready_.empty()) {
        const auto [rank, step] = ready_.back();
        ready_.pop_back();
        become_ready(rank, step);
        continue;
      }
      const auto [rank, step] = completions_.back();
      completions_.pop_back();
      const std::uint32_t first = rank_at(rank).first_step;
      for (const std::uint32_t later : dependencies_.of(rank).after(step)) {
        if (--pending_[first + later] == 0) ready_.push_back({rank, later});
      }
    }
  }

  void become_ready(int rank, std::uint32_t step) {
    const std::uint32_t at = rank_at(rank).first_step + step;
    if (has_come_[at]) return complete(rank, step);
    if (const std::uint32_t stream = streams_.of_step(at); stream != Streams::none) {
      offer(stream);
      return;
    }
    start_[at] = now_;
    const Step& what = step_of(rank, step);
    if (what.kind == StepKind::finish || what.joined) {
      complete(rank, step);
    } else {
      reduce(rank, step);
    }
  }

  void reduce(int rank, std::uint32_t step) {
    Rank& state = rank_at(rank);
    if (state.core == Streams::none) {
      events_.push(now_ + reduction_us(state, step_of(rank, step)),
                   {EventKind::complete, static_cast<std::uint32_t>(rank), step});
      return;
    }
    state.to_reduce.push_back(step);
    if (state.to_reduce.size() == 1) start_reduction(rank);
  }

  void start_reduction(int rank) {
    const Rank& state = rank_at(rank);
    start_flow(state.core,
               state.core_bytes_per_us * reduction_us(state, step_of(rank, state.to_reduce.front())));
  }

  void end_reduction(int rank) {
    Rank& state = rank_at(rank);
    const std::uint32_t step = state.to_reduce.front();
    state.to_reduce.pop_front();
    complete(rank, step);
    if (!state.to_reduce.empty()) start_reduction(rank);
  }

  /// Makes a stream's next transfer a candidate for its sender's issue unit if nothing else holds it up; of a
  /// run, all of its transfers at once.
  void offer(std::uint32_t index) {
    const Stream& stream = streams_.all()[index];
    const StreamState& state = states_[index];
    if (state.is_offered || state.next == stream.first + stream.transfers) return;
    const Program& program = schedule_.ranks[static_cast<std::size_t>(stream.to)];
    const std::uint32_t receive = streams_.receive(state.next);
    const auto begin = static_cast<std::uint32_t>(program.begin_of_run(receive));
    const auto end = static_cast<std::uint32_t>(program.end_of_run(begin));
    const Rank& to = rank_at(stream.to);
    if (!to.has_joined || pending_[to.first_step + begin] != 0) return;
    for (std::uint32_t step = begin; step < end; ++step) {
      if (is_receive(program.steps[step].kind) && !may_be_sent(to.first_step + step, step)) return;
    }
    for (std::uint32_t step = begin; step < end; ++step) {
      if (is_receive(program.steps[step].kind)) make_candidate(streams_.of_step(to.first_step + step));
    }
  }

  /// Whether the sender has come to what a step receives.
  [[nodiscard]] bool may_be_sent(std::uint32_t at, std::uint32_t receive) const {
    const std::uint32_t index = streams_.of_step(at);
    const Stream& stream = streams_.all()[index];
    const StreamState& state = states_[index];
    const Rank& from = ranks_[static_cast<std::size_t>(stream.from)];
    return state.next < stream.first + stream.transfers && streams_.receive(state.next) == receive &&
           !state.is_offered && from.has_joined && pending_[from.first_step + streams_.send(state.next)] == 0;
  }

  void make_candidate(std::uint32_t index) {
    const Stream& stream = streams_.all()[index];
    StreamState& state = states_[index];
    Rank& from = rank_at(stream.from);
    const std::uint32_t send = streams_.send(state.next);
    state.is_offered = true;
    from.candidates.push_back({send, index});
    std::ranges::push_heap(from.candidates, std::greater<>{});
    note_issuer(stream.from);
  }

  void note_issuer(int rank) {
    Rank& state = rank_at(rank);
    if (state.may_issue) return;
    state.may_issue = true;
    issuers_.push_back(rank);
  }

  void issue(int rank) {
    Rank& from = rank_at(rank);
    from.may_issue = false;
    while (!from.is_issuing && !from.candidates.empty()) {
      std::ranges::pop_heap(from.candidates, std::greater<>{});
      const Candidate next = from.candidates.back();
      from.candidates.pop_back();
      const Stream& stream = streams_.all()[next.stream];
      start_[from.first_step + next.step] = now_;
      start_[rank_at(stream.to).first_step + streams_.receive(states_[next.stream].next)] = now_;
      const double overhead = options_.cost.step_overhead * from.factor;
      if (overhead > 0) {
        from.is_issuing = true;
        events_.push(now_ + overhead, {EventKind::issued, next.stream, 0});
      } else {
        start_flow(next.stream);
      }
    }
  }

  void start_flow(std::uint32_t index) {
    StreamState& state = states_[index];
    const Stream& stream = streams_.all()[index];
    const std::uint64_t bytes = bytes_of(step_of(stream.from, streams_.send(state.next)));
    const double volume = static_cast<double>(bytes) * part_moved(stream.to, streams_.receive(state.next)) +
                          options_.cost.cpu_network_message * state.route.network * bytes_per_us;
    state.bytes += bytes;
    state.volume += volume;
    start_flow(index, volume);
  }

  /// Of the bytes of a transfer, what counts on its links: see `is_in_memory`.
  [[nodiscard]] double part_moved(int rank, std::uint32_t receive) const {
    const std::uint32_t at = streams_.first_step(rank) + receive;
    if (!states_[streams_.of_step(at)].route.in_memory) return 1;
    return step_of(rank, receive).kind == StepKind::receive_reduce || is_lent_[at] ? 0.5 : 1;
  }

  /// Receives of what this rank sent the same peer before: `is_lent_`.
  void find_lent() {
    is_lent_.assign(streams_.steps(), false);
    std::set<std::tuple<std::int32_t, std::size_t, std::size_t>> sent;
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      sent.clear();
      std::uint32_t at = streams_.first_step(rank);
      for (const Step& step : schedule_.ranks[static_cast<std::size_t>(rank)].steps) {
        const bool in_memory = !is_local(step.kind) && states_[streams_.of_step(at)].route.in_memory;
        if (in_memory && step.kind == StepKind::send) sent.emplace(step.peer, step.begin, step.end);
        if (in_memory && step.kind == StepKind::receive) {
          is_lent_[at] = sent.contains({step.peer, step.begin, step.end});
        }
        ++at;
      }
    }
  }

  void start_flow(std::uint32_t index, double bytes) {
    StreamState& state = states_[index];
    state.left = bytes;
    state.rate = 0;
    state.since = now_;
    state.began = now_;
    max_min_.start(index);
    ++started_;
    const double wait = is_late_ ? lateness * state.left / max_min_.least_rate(index) : 0;
    settle_at_ = std::min(settle_at_, now_ + wait);
  }

  void end_late(std::uint32_t index) {
    late_flows_.push_back(index);
    states_[index].is_through = true;
    end_late_at_ = std::min(end_late_at_, now_ + lateness * (now_ - states_[index].began));
  }

  void end_flow(std::uint32_t index) {
    StreamState& state = states_[index];
    max_min_.stop(index);
    settle_at_ = now_;
    state.is_through = false;
    const auto streams = streams_.all();
    if (index >= streams.size()) return end_reduction(rank_of_core_[index - streams.size()]);
    const Stream& stream = streams[index];
    const std::uint32_t transfer = state.next++;
    state.is_offered = false;
    complete(stream.from, streams_.send(transfer));
    const std::uint32_t step = streams_.receive(transfer);
    const Step& receive = step_of(stream.to, step);
    // A run looks for what the others have in memory once, and has one result.
    const std::uint32_t at = rank_at(stream.to).first_step + step;
    const bool joins = receive.joined && state.route.in_memory;
    const double delay = joins ? 0 : state.latency * latency_factor(stream, transfer - stream.first);
    const bool reduces = receive.kind == StepKind::receive_reduce && !joins;
    if (pending_[at] != 0) {  // the steps before it in its run are not over
      has_come_[at] = true;
    } else if (delay > 0) {
      events_.push(now_ + delay, {reduces ? EventKind::arrived : EventKind::complete,
                                  static_cast<std::uint32_t>(stream.to), step});
    } else if (reduces) {
      reduce(stream.to, step);
    } else {
      complete(stream.to, step);
    }
    offer(index);
  }

  [[nodiscard]] double latency_factor(const Stream& stream, std::uint32_t transfer) const {
    if (options_.jitter == 0) return 1;
    const auto ends = static_cast<std::uint64_t>(stream.from) << 32U | static_cast<std::uint32_t>(stream.to);
    return 1 + options_.jitter * unit_from(mix(mix(mix(options_.seed) ^ ends) ^ transfer));
  }

  void settle() {
    const auto changed = max_min_.settle();
    settle_at_ = never;
    is_late_ = max_min_.work() > work_for_a_transfer * (started_ + work_for_a_transfer);
    flow_ends_.set_all(changed, [&](std::uint32_t index) {
      StreamState& state = states_[index];
      state.left = std::max(state.left - state.rate * (now_ - state.since), 0.0);
      state.since = now_;
      state.rate = max_min_.rate(index);
      return state.is_through ? never : now_ + state.left / state.rate;
    });
  }

  [[noreturn]] void report_deadlock() const {
    constexpr int most = 4;
    std::string waiting;
    int count = 0;
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      const std::uint32_t first = streams_.first_step(rank);
      const std::uint32_t last = streams_.first_step(rank + 1);
      const auto end =
          std::find_if(end_.begin() + first, end_.begin() + last, [](double t) { return t < 0; });
      if (end == end_.begin() + last) continue;
      if (++count > most) continue;
      const auto step = static_cast<std::uint32_t>(end - end_.begin()) - first;
      waiting += fmt::format("{}rank {} waits in step {}, {}", waiting.empty() ? "" : "; ", rank, step,
                             to_string(step_of(rank, step)));
    }
    if (count > most) waiting += fmt::format("; and {} more ranks", count - most);
    throw Error(ErrorCode::invalid_argument,
                fmt::format("schedule: found a deadlock after {} of {} steps ({}), expected one that ends; "
                            "`verify` says more",
                            completed_, streams_.steps(), waiting));
  }

  Simulation results() {
    Simulation result;
    for (const double end : end_) result.total_us = std::max(result.total_us, end);
    result.transfers = streams_.transfers();
    result.phases = phases();
    result.channels = channel_uses(result.total_us);
    pending_ = {};
    result.critical = critical_path(schedule_, streams_, dependencies_, start_, end_, joined_);
    if (options_.keep_events) {
      result.events.reserve(end_.size());
      for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
        const std::uint32_t first = streams_.first_step(rank);
        for (std::uint32_t at = first; at < streams_.first_step(rank + 1); ++at) {
          result.events.push_back({rank, at - first, start_[at], end_[at]});
        }
      }
    }
    return result;
  }

  [[nodiscard]] std::vector<SimulatedPhase> phases() const {
    std::array<SimulatedPhase, 256> all;
    std::array<bool, 256> is_used{};
    std::uint32_t at = 0;
    for (const Program& program : schedule_.ranks) {
      for (const Step& step : program.steps) {
        SimulatedPhase& phase = all[step.phase];
        if (!is_used[step.phase]) phase = {step.phase, start_[at], end_[at], 0};
        is_used[step.phase] = true;
        phase.start_us = std::min(phase.start_us, start_[at]);
        phase.end_us = std::max(phase.end_us, end_[at]);
        if (step.kind == StepKind::send) phase.bytes += bytes_of(step);
        ++at;
      }
    }
    std::vector<SimulatedPhase> result;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (is_used[i]) result.push_back(all[i]);
    }
    return result;
  }

  [[nodiscard]] std::vector<ChannelUse> channel_uses(double total_us) const {
    struct Carried {
      std::uint64_t bytes = 0;
      double volume = 0;
    };
    std::map<Channel, Carried> all;
    for (std::size_t i = 0; i < streams_.all().size(); ++i) {
      for (const Channel channel : channels_[i]) {
        Carried& carried = all[channel];
        carried.bytes += states_[i].bytes;
        carried.volume += states_[i].volume;
      }
    }
    std::vector<ChannelUse> result;
    for (const auto& [channel, carried] : all) {
      const Link& link = topology_.links()[static_cast<std::size_t>(link_of(channel))];
      double volume = carried.volume;
      if (link.duplex == Duplex::half) {
        const auto back = all.find(channel ^ 1);
        if (back != all.end()) volume += back->second.volume;
      }
      result.push_back({channel, carried.bytes, volume / (link.bandwidth * bytes_per_us * total_us)});
    }
    return result;
  }

  const Schedule& schedule_;
  const SimulationOptions& options_;
  Streams streams_;
  SharedDependencies dependencies_;
  const Topology& topology_;
  std::vector<StreamState> states_;
  std::vector<std::uint32_t> core_of_;  // each rank's flow of reductions, after the streams'
  std::vector<int> rank_of_core_;
  std::vector<Channel> core_channels_;
  std::vector<bool> is_lent_;                       // of each step
  std::vector<std::span<const Channel>> channels_;  // of each stream; the route table's
  MaxMin max_min_;
  std::vector<std::uint32_t> pending_;  // of each step, how many steps it waits for
  std::vector<bool> has_come_;          // of each step: its transfer is over, but it waits
  std::vector<double> start_;           // of each step; -1: not yet
  std::vector<double> end_;
  std::vector<double> joined_;  // of each rank
  std::vector<Rank> ranks_;
  EventQueue<Event> events_;
  TimedSet flow_ends_;
  double now_ = 0;
  bool is_late_ = false;
  double settle_at_ = never;               // when rates have to be right again
  double end_late_at_ = never;             // when the late flows have to end
  std::vector<std::uint32_t> late_flows_;  // that are through, but have not ended yet
  std::uint64_t started_ = 0;
  std::uint64_t completed_ = 0;
  std::vector<std::pair<int, std::uint32_t>> completions_;  // of this instant, not yet followed up
  std::vector<std::pair<int, std::uint32_t>> ready_;
  std::vector<int> issuers_;  // ranks that may have something to issue now
  std::vector<std::uint32_t> due_flows_;
  std::vector<Event> due_events_;
};

}  // namespace

Simulator::Simulator(const Topology& topology, const Placement& placement)
    : routes_(std::make_unique<RouteTable>(topology, placement)) {}
Simulator::~Simulator() = default;
Simulator::Simulator(Simulator&&) noexcept = default;
Simulator& Simulator::operator=(Simulator&&) noexcept = default;

Simulation Simulator::run(const Schedule& schedule, const SimulationOptions& options) {
  if (schedule.ranks.size() != static_cast<std::size_t>(routes_->ranks())) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("simulation: found a placement of {} ranks, expected one of the schedule's {}",
                            routes_->ranks(), schedule.ranks.size()));
  }
  check_options(options, routes_->ranks());
  return Run(*routes_, schedule, options).run();
}

Simulation simulate(const Topology& topology, const Placement& placement, const Schedule& schedule,
                    const SimulationOptions& options) {
  return Simulator(topology, placement).run(schedule, options);
}

}  // namespace ddl::topology
