#include "ddl/topology/simulator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "ddl/hash.hpp"
#include "topology/graph/link_figures.hpp"
#include "topology/program/streams.hpp"
#include "topology/refuse.hpp"
#include "topology/simulator/critical_path.hpp"
#include "topology/simulator/max_min.hpp"
#include "topology/simulator/simulator_routes.hpp"
#include "topology/simulator/timed_set.hpp"

namespace ddl::topology {
namespace {

// Events this close (relative to the time) are one instant: sums in different orders differ by less.
constexpr double one_instant = 1e-9;
// Where hundreds of flows change each other's rates with every start and end, starts and ends within this
// part of a transfer's duration are handled together: all of them late, so that nothing gets faster. This
// begins when transfers change so many rates on average (`work_for_a_transfer`).
constexpr double lateness = 5e-4;
constexpr std::uint64_t work_for_a_transfer = 64;
constexpr double never = std::numeric_limits<double>::infinity();

void require(bool condition, std::string_view name, double found, std::string_view expected) {
  if (condition) return;
  refuse("simulation: {}: found {}, expected {}", name, found, expected);
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

[[noreturn]] void refuse_schedule(const std::string& found, const std::string& expected) {
  refuse("schedule: found {}, expected {}", found, expected);
}

void check_number_of_steps(const Schedule& schedule) {
  std::uint64_t steps = 0;
  for (const Program& program : schedule.ranks) steps += program.steps.size();
  if (steps >= no_step) refuse_schedule("2^32 steps or more", "fewer");
}

void check_steps(const StepNumbers& steps) {
  constexpr std::size_t most_elements = std::size_t{1} << 50U;
  const auto ranks = static_cast<int>(steps.schedule().ranks.size());
  for (StepId id = 0; id < steps.size(); ++id) {
    const Step& step = steps[id];
    const auto here = [&] { return fmt::format("step {} of rank {}", steps.index(id), steps.rank(id)); };
    if (!is_local(step.kind) && (step.peer < 0 || step.peer >= ranks || step.peer == steps.rank(id))) {
      refuse_schedule(fmt::format("peer {} in {}", step.peer, here()),
                      fmt::format("another of the {} ranks", ranks));
    }
    if (step.begin >= step.end) {
      refuse_schedule(fmt::format("{} to be {}", here(), to_string(step)), "at least one element");
    }
    if (std::max(step.end, step.source) > most_elements) {
      refuse_schedule(fmt::format("{} to be {}", here(), to_string(step)),
                      fmt::format("at most {} elements", most_elements));
    }
  }
}

/// One simulation of a schedule.
class Run {
 public:
  Run(RouteTable& routes, const StepNumbers& steps, const Streams& streams, const SimulationOptions& options)
      : schedule_(steps.schedule()),
        options_(options),
        steps_(steps),
        streams_(streams),
        dependencies_(schedule_),
        topology_(routes.topology()),
        max_min_(route_streams(routes)),
        pending_(steps.size()),
        has_come_(steps.size(), false),
        start_(steps.size(), -1),
        end_(steps.size(), -1),
        joined_(schedule_.ranks.size(), -1),
        ranks_(schedule_.ranks.size()),
        flow_ends_(states_.size()) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      ranks_[rank].device = routes.device_kind(static_cast<int>(rank));
      ranks_[rank].core = core_of_[rank];
      const auto channel = routes.core_channel(static_cast<int>(rank));
      if (!channel) continue;
      ranks_[rank].core_bytes_per_us = topology_.link(link_of(*channel)).bandwidth * figures::bytes_per_us;
    }
    find_lent();
    for (const Straggler& straggler : options.stragglers) {
      Rank& rank = ranks_[as_index(straggler.rank)];
      rank.factor = std::max(rank.factor, straggler.factor);
      rank.start = std::max(rank.start, straggler.start_us);
    }
  }

  Simulation run() {
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      const auto& table = dependencies_.of(static_cast<int>(rank));
      for (std::uint32_t step = 0; step < table.steps(); ++step) {
        pending_[steps_.first(rank) + step] = table.number_before(step);
      }
      add_event(ranks_[rank].start, EventKind::join, rank);
    }
    for (;;) {
      const double first = std::min({next_event(), flow_ends_.next(), settle_at_, end_late_at_});
      if (first == never) break;
      handle_instant(first * (1 + one_instant));
    }
    if (completed_ != steps_.size()) report_deadlock();
    return results();
  }

 private:
  enum class EventKind : std::uint8_t { join, issued, arrived, complete };
  struct Event {
    double time;
    EventKind kind;
    std::uint32_t subject;  // a rank for `join`, else a step
    bool operator>(const Event& other) const noexcept { return time > other.time; }
  };
  template <typename T>
  using LeastFirst = std::priority_queue<T, std::vector<T>, std::greater<>>;
  struct Rank {
    NodeKind device = NodeKind::cpu;
    double factor = 1;
    double start = 0;
    bool has_joined = false;
    bool is_issuing = false;
    bool may_issue = false;         // listed in issuers_
    LeastFirst<StepId> candidates;  // sends that may be issued
    // If reductions compete with transfers: the flow that stands for the rank's reductions, one at a time.
    std::uint32_t core = Streams::none;
    double core_bytes_per_us = 0;
    std::deque<StepId> to_reduce;  // the first one is in flight
  };
  struct StreamState {
    std::uint32_t next = 0;  // its first transfer that has not ended
    bool is_offered = false;
    bool is_through = false;  // all bytes have left, but the flow ends late
    double left = 0;          // bytes that the flow had left at `since`
    double rate = 0;
    double since = 0;
    double began = 0;                          // when the flow started
    std::uint64_t bytes = 0;                   // of all transfers so far
    double volume = 0;                         // bytes that these transfers count as
    const RouteTable::Route* route = nullptr;  // null for reductions
  };

  MaxMin route_streams(RouteTable& routes) {
    const auto streams = streams_.all();
    states_.resize(streams.size());
    for (std::size_t i = 0; i < streams.size(); ++i) {
      states_[i].next = streams[i].first;
      states_[i].route = &routes.between(streams[i].from, streams[i].to);
    }
    std::vector<std::span<const Channel>> channels;
    channels.reserve(streams.size());
    for (const StreamState& state : states_) channels.emplace_back(state.route->channels);
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

  [[nodiscard]] std::uint64_t bytes_of(const Step& step) const {
    return step.size() * (step.narrow ? size_of(schedule_.ranks.front().wire) : options_.element_bytes);
  }
  Rank& rank_at(int rank) { return ranks_[as_index(rank)]; }
  Rank& rank_of(StepId step) { return rank_at(steps_.rank(step)); }
  [[nodiscard]] double reduction_us(const Rank& rank, StepId step) const {
    const auto bytes = static_cast<double>(bytes_of(steps_[step]));
    return rank.factor * options_.cost.reduction_us(rank.device, bytes);
  }

  void add_event(double time, EventKind kind, std::uint32_t subject) { events_.push({time, kind, subject}); }
  [[nodiscard]] double next_event() const { return events_.empty() ? never : events_.top().time; }

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
    while (next_event() <= latest) {
      now_ = std::max(now_, next_event());
      due_events_.push_back(events_.top());
      events_.pop();
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
      case EventKind::issued:
        rank_of(event.subject).is_issuing = false;
        note_issuer(steps_.rank(event.subject));
        start_transfer(event.subject);
        break;
      case EventKind::arrived:
        reduce(event.subject);
        break;
      case EventKind::complete:
        complete(event.subject);
        break;
    }
  }

  void join(int rank) {
    rank_at(rank).has_joined = true;
    joined_[as_index(rank)] = now_;
    const auto& table = dependencies_.of(rank);
    const StepId first = steps_.first(as_index(rank));
    for (std::uint32_t step = 0; step < table.steps(); ++step) {
      if (table.number_before(step) == 0) ready_.push_back(first + step);
    }
  }

  void complete(StepId step) {
    end_[step] = now_;
    ++completed_;
    completions_.push_back(step);
  }

  /// Follows up the completions of this instant, with lists instead of recursion because chains can be long.
  void make_progress() {
    while (!completions_.empty() || !ready_.empty()) {
      if (!ready_.empty()) {
        const StepId step = ready_.back();
        ready_.pop_back();
        become_ready(step);
        continue;
      }
      const StepId step = completions_.back();
      completions_.pop_back();
      const std::uint32_t index = steps_.index(step);
      for (const std::uint32_t later : dependencies_.of(steps_.rank(step)).after(index)) {
        const StepId id = step - index + later;
        if (--pending_[id] == 0) ready_.push_back(id);
      }
    }
  }

  void become_ready(StepId step) {
    if (has_come_[step]) return complete(step);
    if (const std::uint32_t stream = streams_.stream(step); stream != Streams::none) return offer(stream);
    start_[step] = now_;
    const Step& what = steps_[step];
    if (what.kind == StepKind::finish || what.joined || copies_sum(step)) {
      complete(step);
    } else {
      reduce(step);
    }
  }

  /// Whether the step copies what a pass over peers' memory has just written, which the core still caches.
  [[nodiscard]] bool copies_sum(StepId copy) const {
    return steps_[copy].kind == StepKind::copy && steps_.index(copy) != 0 && steps_[copy - 1].joined &&
           ranks_[as_index(steps_.rank(copy))].core != Streams::none;
  }

  void reduce(StepId step) {
    Rank& rank = rank_of(step);
    if (rank.core == Streams::none) {
      return add_event(now_ + reduction_us(rank, step), EventKind::complete, step);
    }
    rank.to_reduce.push_back(step);
    if (rank.to_reduce.size() == 1) start_reduction(rank);
  }

  void start_reduction(const Rank& rank) {
    start_flow(rank.core, rank.core_bytes_per_us * reduction_us(rank, rank.to_reduce.front()));
  }

  void end_reduction(Rank& rank) {
    const StepId step = rank.to_reduce.front();
    rank.to_reduce.pop_front();
    complete(step);
    if (!rank.to_reduce.empty()) start_reduction(rank);
  }

  /// Makes a stream's next transfer a candidate to be issued, if nothing else delays it. The transfers of a
  /// run become candidates together.
  void offer(std::uint32_t index) {
    const Stream& stream = streams_.all()[index];
    const StreamState& state = states_[index];
    if (state.is_offered || state.next == stream.first + stream.transfers) return;
    const StepId begin = steps_.begin_of_run(streams_.receive(state.next));
    const StepId end = steps_.end_of_run(begin);
    if (!rank_at(stream.to).has_joined || pending_[begin] != 0) return;
    for (StepId step = begin; step < end; ++step) {
      if (is_receive(steps_[step].kind) && !may_be_sent(step)) return;
    }
    for (StepId step = begin; step < end; ++step) {
      if (is_receive(steps_[step].kind)) make_candidate(streams_.stream(step));
    }
  }

  /// Whether the sender is ready to send what a step receives.
  [[nodiscard]] bool may_be_sent(StepId receive) const {
    const std::uint32_t index = streams_.stream(receive);
    const auto from = as_index(streams_.all()[index].from);
    const StreamState& state = states_[index];
    return state.next == streams_.transfer(receive) && !state.is_offered && ranks_[from].has_joined &&
           pending_[streams_.send(state.next)] == 0;
  }

  void make_candidate(std::uint32_t stream) {
    StreamState& state = states_[stream];
    const StepId send = streams_.send(state.next);
    state.is_offered = true;
    rank_of(send).candidates.push(send);
    note_issuer(steps_.rank(send));
  }

  void note_issuer(int rank) {
    if (!std::exchange(rank_at(rank).may_issue, true)) issuers_.push_back(rank);
  }

  void issue(int rank) {
    Rank& from = rank_at(rank);
    from.may_issue = false;
    while (!from.is_issuing && !from.candidates.empty()) {
      const StepId send = from.candidates.top();
      from.candidates.pop();
      start_[send] = now_;
      start_[streams_.partner(send)] = now_;
      const double overhead = options_.cost.step_overhead * from.factor;
      if (overhead > 0) {
        from.is_issuing = true;
        add_event(now_ + overhead, EventKind::issued, send);
      } else {
        start_transfer(send);
      }
    }
  }

  void start_transfer(StepId send) {
    const std::uint32_t stream = streams_.stream(send);
    StreamState& state = states_[stream];
    const std::uint64_t bytes = bytes_of(steps_[send]);
    const double volume = static_cast<double>(bytes) * part_moved(streams_.partner(send)) +
                          options_.cost.cpu_network_message * state.route->network * figures::bytes_per_us;
    state.bytes += bytes;
    state.volume += volume;
    start_flow(stream, volume);
  }

  /// The part of a transfer's bytes that counts on its links: see `is_in_memory`.
  [[nodiscard]] double part_moved(StepId receive) const {
    if (!states_[streams_.stream(receive)].route->in_memory) return 1;
    return steps_[receive].kind == StepKind::receive_reduce || is_lent_[receive] ? 0.5 : 1;
  }

  /// Sets `is_lent_` for receives of a range that the rank sent to the same peer before.
  void find_lent() {
    is_lent_.assign(steps_.size(), false);
    std::set<std::tuple<std::int32_t, std::size_t, std::size_t>> sent;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      sent.clear();
      for (StepId id = steps_.first(rank); id < steps_.first(rank + 1); ++id) {
        const Step& step = steps_[id];
        if (is_local(step.kind) || !states_[streams_.stream(id)].route->in_memory) continue;
        if (step.kind == StepKind::send) sent.emplace(step.peer, step.begin, step.end);
        if (step.kind == StepKind::receive) is_lent_[id] = sent.contains({step.peer, step.begin, step.end});
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
    if (index >= streams.size()) return end_reduction(rank_at(rank_of_core_[index - streams.size()]));
    const Stream& stream = streams[index];
    const std::uint32_t transfer = state.next++;
    state.is_offered = false;
    complete(streams_.send(transfer));
    const StepId id = streams_.receive(transfer);
    const Step& receive = steps_[id];
    // A run is one pass over its peers' memory: its joined steps add no latency and no reduction.
    const bool joins = receive.joined && state.route->in_memory;
    const double delay = joins ? 0 : state.route->latency * latency_factor(stream, transfer - stream.first);
    const bool reduces = receive.kind == StepKind::receive_reduce && !joins;
    if (pending_[id] != 0) {  // earlier steps of its run are not complete
      has_come_[id] = true;
    } else if (delay > 0) {
      add_event(now_ + delay, reduces ? EventKind::arrived : EventKind::complete, id);
    } else if (reduces) {
      reduce(id);
    } else {
      complete(id);
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
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const auto last = end_.begin() + steps_.first(rank + 1);
      const auto end = std::find_if(end_.begin() + steps_.first(rank), last, [](double t) { return t < 0; });
      if (end == last || ++count > most) continue;
      const auto id = static_cast<StepId>(end - end_.begin());
      waiting += fmt::format("{}rank {} waits in step {}, {}", waiting.empty() ? "" : "; ", rank,
                             steps_.index(id), to_string(steps_[id]));
    }
    if (count > most) waiting += fmt::format("; and {} more ranks", count - most);
    refuse(
        "schedule: found a deadlock after {} of {} steps ({}), expected one that ends; "
        "`verify` says more",
        completed_, steps_.size(), waiting);
  }

  Simulation results() {
    Simulation result;
    for (const double end : end_) result.total_us = std::max(result.total_us, end);
    result.transfers = streams_.transfers();
    result.phases = phases();
    result.channels = channel_uses(result.total_us);
    pending_ = {};
    result.critical = critical_path(steps_, streams_, dependencies_, start_, end_, joined_);
    if (options_.keep_events) {
      result.events.reserve(end_.size());
      for (StepId id = 0; id < steps_.size(); ++id) {
        result.events.push_back({steps_.rank(id), steps_.index(id), start_[id], end_[id]});
      }
    }
    return result;
  }

  [[nodiscard]] std::vector<SimulatedPhase> phases() const {
    std::array<SimulatedPhase, 256> all;
    std::array<bool, 256> is_used{};
    for (StepId id = 0; id < steps_.size(); ++id) {
      const Step& step = steps_[id];
      SimulatedPhase& phase = all[step.phase];
      if (!is_used[step.phase]) phase = {step.phase, start_[id], end_[id], 0};
      is_used[step.phase] = true;
      phase.start_us = std::min(phase.start_us, start_[id]);
      phase.end_us = std::max(phase.end_us, end_[id]);
      if (step.kind == StepKind::send) phase.bytes += bytes_of(step);
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
      const Link& link = topology_.link(link_of(channel));
      double volume = carried.volume;
      if (link.duplex == Duplex::half) {
        const auto back = all.find(channel ^ 1);
        if (back != all.end()) volume += back->second.volume;
      }
      result.push_back(
          {channel, carried.bytes, volume / (link.bandwidth * figures::bytes_per_us * total_us)});
    }
    return result;
  }

  const Schedule& schedule_;
  const SimulationOptions& options_;
  const StepNumbers& steps_;
  const Streams& streams_;
  SharedDependencies dependencies_;
  const Topology& topology_;
  std::vector<StreamState> states_;
  std::vector<std::uint32_t> core_of_;  // by rank: its flow of reductions, numbered after the streams
  std::vector<int> rank_of_core_;
  std::vector<Channel> core_channels_;
  std::vector<bool> is_lent_;                       // by step
  std::vector<std::span<const Channel>> channels_;  // by flow; owned by the route table and core_channels_
  MaxMin max_min_;
  std::vector<std::uint32_t> pending_;  // by step: how many steps it still waits for
  std::vector<bool> has_come_;          // by step: its transfer has ended, but it waits for other steps
  std::vector<double> start_;           // by step; -1: not yet
  std::vector<double> end_;
  std::vector<double> joined_;  // by rank
  std::vector<Rank> ranks_;
  LeastFirst<Event> events_;
  TimedSet flow_ends_;
  double now_ = 0;
  bool is_late_ = false;
  double settle_at_ = never;               // when rates must be updated
  double end_late_at_ = never;             // when the late flows must end
  std::vector<std::uint32_t> late_flows_;  // whose bytes have left, but which have not ended
  std::uint64_t started_ = 0;
  std::uint64_t completed_ = 0;
  std::vector<StepId> completions_;  // of this instant, not followed up yet
  std::vector<StepId> ready_;
  std::vector<int> issuers_;  // ranks that may have a send to issue now
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
  if (schedule.ranks.size() != as_index(routes_->ranks())) {
    refuse("simulation: found a placement of {} ranks, expected one of the schedule's {}", routes_->ranks(),
           schedule.ranks.size());
  }
  check_options(options, routes_->ranks());
  check_number_of_steps(schedule);
  const StepNumbers steps(schedule);
  check_steps(steps);
  const Streams streams(steps);
  if (!streams.problem().empty()) refuse("schedule: {}", streams.problem());
  return Run(*routes_, steps, streams, options).run();
}

Simulation simulate(const Topology& topology, const Placement& placement, const Schedule& schedule,
                    const SimulationOptions& options) {
  return Simulator(topology, placement).run(schedule, options);
}

}  // namespace ddl::topology
