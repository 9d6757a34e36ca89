#include "topology/planner/pipeline_time.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "topology/program/lowering.hpp"

namespace ddl::topology {
namespace {

constexpr double drift = 1.01;

/// Time of all repetitions of a round.
double rounds_time(const ProfileRound& round, double bytes, double messages, double step_overhead) {
  step_overhead *= messages;
  const double busy = round.busy * messages;
  const double sending = std::max(step_overhead + round.us_per_byte * bytes + busy,
                                  round.sends * step_overhead + round.alone * bytes);
  const double moving = round.repeat * (sending + round.latency + round.local * bytes);
  if (round.slowest_edge == 0) return moving;
  // In a ring, a message waits for the one before it on its path, and for the one before it on its edge.
  const double staying = round.repeat * (step_overhead + round.slowest_edge * bytes + busy) +
                         round.slowest_latency + round.local * bytes;
  return std::max(moving, staying);
}

/// How long a round occupies its streams, which the same round of another chunk waits for.
double stream_time(const ProfileRound& round, double bytes, double messages, double step_overhead) {
  step_overhead *= messages;
  const double edge = std::max(round.us_per_byte, round.slowest_edge) * bytes + round.busy * messages;
  return round.sends == 1 ? step_overhead + edge : std::max(round.sends * step_overhead, edge);
}

}  // namespace

double phase_time(const ProfiledPhase& phase, double bytes, int chunks, double step_overhead) {
  double time = 0;
  for (const ProfileRound& round : phase.profile->rounds) {
    time += rounds_time(round, bytes * phase.share, phase.messages(chunks), step_overhead);
  }
  return time;
}

void PipelineTime::set_phases(std::span<const ProfiledPhase> phases) {
  phases_.assign(phases.begin(), phases.end());
  rounds_.clear();
  // On the way down, a dimension's stages use the streams of the way up, in reverse order.
  std::map<std::pair<int, std::size_t>, std::size_t> streams;
  std::size_t others = 0;
  for (std::size_t at = 0; at < phases_.size(); ++at) {
    const ProfiledPhase& phase = phases_[at];
    const auto& rounds = phase.profile->rounds;
    for (std::size_t i = 0; i < rounds.size(); ++i) {
      std::size_t stage = phase.is_down ? rounds.size() - 1 - i : i;
      if (!phase.profile->returns) stage = most_rounds + others++;
      const auto entry = streams.try_emplace({phase.dimension, stage}, streams.size()).first;
      rounds_.push_back({&rounds[i], phase.share, entry->second, at});
    }
  }
  streams_ = streams.size();
  choose_resources();
}

/// Chooses the busiest classes, without those that never exceed a chosen one in any phase.
void PipelineTime::choose_resources() {
  const auto classes = static_cast<std::uint32_t>(classes_->classes());
  // The way back has the same column as the way up.
  loads_.clear();
  for (const ProfiledPhase& phase : phases_) {
    const auto known = std::ranges::find_if(loads_, [&](const ColumnLoad& load) {
      return load.column == phase.profile->total_column && load.unit == phase.share;
    });
    if (known == loads_.end()) {
      loads_.push_back({phase.profile->total_column, phase.share, phase.share});
    } else {
      known->share += phase.share;
    }
  }
  total_.assign(classes, 0);
  for (const ColumnLoad& load : loads_) {
    const float* const column = classes_->column(load.column).data();
    const double share = load.share;
    for (std::size_t i = 0; i < classes; ++i) total_[i] += share * static_cast<double>(column[i]);
  }
  // A class less than half as busy as the busiest one delays nothing.
  const double busiest = *std::ranges::max_element(total_);
  order_.clear();
  for (std::uint32_t i = 0; i < classes; ++i) {
    if (total_[i] > 0 && total_[i] >= busiest / 2) order_.push_back(i);
  }
  busy_.clear();
  while (!order_.empty() && busy_.size() < most_resources) {
    const std::uint32_t best =
        *std::ranges::min_element(order_, {}, [&](std::uint32_t i) { return std::pair(-total_[i], i); });
    std::erase_if(order_, [&](std::uint32_t other) {
      return std::ranges::all_of(loads_, [&](const ColumnLoad& load) {
        const auto column = classes_->column(load.column);
        return column[other] <= column[best];
      });
    });
    Busy busy{total_[best], rounds_.size(), 0, best};
    std::vector<std::size_t> streams;
    const bool is_busiest = busy_.empty();
    if (is_busiest) crossing_ = 0;
    for (std::size_t i = 0; i < rounds_.size(); ++i) {
      const Rounds& rounds = rounds_[i];
      if (classes_->load(rounds.round->column, best) == 0) continue;
      busy.first = std::min(busy.first, i);
      busy.last = i;
      if (!is_busiest || std::ranges::find(streams, rounds.stream) != streams.end()) continue;
      streams.push_back(rounds.stream);
      crossing_ += rounds.round->sends > 1 ? 2 : 1;
    }
    busy_.push_back(busy);
  }
}

double PipelineTime::least(double bytes, int chunks) {
  const double chunk = bytes / chunks;
  durations_.clear();
  for (const Rounds& rounds : rounds_) {
    durations_.push_back(
        rounds_time(*rounds.round, chunk * rounds.share, messages(rounds, chunks), step_overhead_));
  }
  double time = std::accumulate(durations_.begin(), durations_.end(), 0.0);
  for (const Busy& busy : busy_) {
    double around = 0;
    for (std::size_t i = 0; i < busy.first; ++i) around += durations_[i];
    for (std::size_t i = busy.last + 1; i < durations_.size(); ++i) around += durations_[i];
    time = std::max(time, around + busy.us_per_byte * bytes + chunks * messages_time(busy.of_class, chunks));
  }
  return std::max(time, issue(chunks));
}

/// us for which a chunk's messages occupy a resource, besides their bytes.
double PipelineTime::messages_time(std::uint32_t of_class, int chunks) const {
  double time = 0;
  for (const Rounds& rounds : rounds_) {
    if (classes_->load(rounds.round->column, of_class) == 0) continue;
    time += rounds.round->repeat * rounds.round->busy * messages(rounds, chunks);
  }
  return time;
}

/// us that the rank with the most messages needs to issue them.
double PipelineTime::issue(int chunks) const {
  double of_chunk = 0;
  for (const Rounds& rounds : rounds_) {
    of_chunk += rounds.round->repeat * rounds.round->sends * messages(rounds, chunks) * step_overhead_;
  }
  return chunks * of_chunk;
}

/// When the last of `chunks` has passed `sequence_`, if chunks take turns on their streams, on the first
/// `resources` of busy_ and, with `with_issue`, on issuing.
double PipelineTime::in_order(int chunks, std::size_t resources, bool with_issue) {
  ready_.assign(as_index(chunks), 0);
  stream_free_.assign(streams_, 0);
  double busy_until[most_resources] = {};
  double issue_free = 0;
  double scratch_free_at[chunks_in_scratch] = {};
  const int steps = static_cast<int>(sequence_.size());
  for (int slot = 0; slot < steps + chunks - 1; ++slot) {
    for (int c = std::max(0, slot - steps + 1); c <= std::min(chunks - 1, slot); ++c) {
      const Timed& now = timed_[sequence_[as_index(slot - c)]];
      double& ready = ready_[as_index(c)];
      double& free = stream_free_[now.stream];
      double& scratch_free = scratch_free_at[as_index(c) % chunks_in_scratch];
      double start = std::max(ready, free);
      if (now.uses_scratch) start = std::max(start, scratch_free);
      if (with_issue) start = std::max(start, issue_free);
      for (std::size_t k = 0; k < resources; ++k) {
        if (now.busy[k] > 0) start = std::max(start, busy_until[k]);
      }
      for (std::size_t k = 0; k < resources; ++k) {
        if (now.busy[k] > 0) busy_until[k] = start + now.busy[k];
      }
      issue_free = start + now.issue;
      free = start + now.held;
      ready = start + now.duration;
      if (now.uses_scratch) scratch_free = ready;
    }
  }
  return *std::ranges::max_element(ready_);
}

double PipelineTime::of(double bytes, int chunks, int most_steps) {
  const double lower = least(bytes, chunks);
  if (chunks == 1) return lower;
  const double chunk = bytes / chunks;
  int count = 0;
  for (const Rounds& rounds : rounds_) count += rounds.round->repeat;
  const int together = (count + most_steps - 1) / most_steps;

  timed_.clear();
  sequence_.clear();
  for (std::size_t i = 0; i < rounds_.size(); ++i) {
    const ProfileRound& round = *rounds_[i].round;
    const int steps = (round.repeat + together - 1) / together;
    const double part = static_cast<double>(round.repeat) / steps;
    Timed timed;
    timed.duration = durations_[i] / steps;
    timed.issue = round.sends * messages(rounds_[i], chunks) * step_overhead_ * part;
    timed.held =
        stream_time(round, chunk * rounds_[i].share, messages(rounds_[i], chunks), step_overhead_) * part;
    timed.stream = rounds_[i].stream;
    timed.uses_scratch = round.uses_scratch;
    for (std::size_t k = 0; k < busy_.size(); ++k) {
      const auto load = static_cast<double>(classes_->load(round.column, busy_[k].of_class));
      timed.busy[k] = load * chunk * rounds_[i].share * part;
      if (load > 0) timed.busy[k] += round.busy * messages(rounds_[i], chunks) * part;
    }
    timed_.push_back(timed);
    for (int step = 0; step < steps; ++step) sequence_.push_back(i);
  }
  // The other resources have room to spare, so that chunks need not use them in the schedule's order.
  const double issuing = issue(chunks);
  const double busiest = busy_.empty() ? 0 : busy_[0].us_per_byte * bytes;
  const double limit = 0.8 * std::max(issuing, busiest);
  std::size_t tight = 0;
  while (tight < busy_.size() && busy_[tight].us_per_byte * bytes >= limit) ++tight;
  // Messages are less strict than rounds: those that can go ahead regain half of what the order costs.
  const double in_streams = std::max(lower, in_order(chunks, 0, false));
  double time = (in_streams + std::max(lower, in_order(chunks, tight, issuing >= limit))) / 2;
  // Many small messages between many pairs drift apart, so that some links idle while others are crowded.
  if (crossing_ > 1) {
    for (int more = 16; more <= chunks; more *= 2) time *= drift;
  }
  return time;
}

}  // namespace ddl::topology
