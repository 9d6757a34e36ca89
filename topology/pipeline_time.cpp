#include "topology/pipeline_time.hpp"

#include <algorithm>

namespace ddl::topology {
namespace {

/// Longer sequences of rounds are taken several at a time.
constexpr int most_rounds = 600;
constexpr std::size_t most_dimensions = 4096;  // of a plan; most have one member

/// Of all of a round's repetitions.
double rounds_time(const ProfileRound& round, double bytes, double step_overhead) {
  const double sending =
      std::max(step_overhead + round.us_per_byte * bytes, round.sends * step_overhead + round.alone * bytes);
  const double moving = round.repeat * (sending + round.latency + round.local * bytes);
  if (round.slowest_edge == 0) return moving;
  // A ring's messages wait for the one before them on the way, and for the one before them on the edge.
  const double staying = round.repeat * (step_overhead + round.slowest_edge * bytes) + round.slowest_latency +
                         round.local * bytes;
  return std::max(moving, staying);
}

}  // namespace

double phase_time(const ProfiledPhase& phase, double bytes, double step_overhead) {
  double time = 0;
  for (const ProfileRound& round : phase.profile->rounds) {
    time += rounds_time(round, bytes * phase.share, step_overhead);
  }
  return time;
}

void PipelineTime::set_phases(std::span<const ProfiledPhase> phases) {
  phases_.assign(phases.begin(), phases.end());
  choose_resources();
  kinds_.clear();
  runs_.clear();
  for (const ProfiledPhase& phase : phases_) {
    // Up and down a ring goes over the same streams.
    const int stream = phase.profile->one_stream ? phase.dimension : -1;
    for (const ProfileRound& round : phase.profile->rounds) {
      Kind kind{&round, phase.share, stream, {}};
      const auto column = classes_->column(round.column);
      for (std::size_t i = 0; i < resources_; ++i) kind.load[i] = column[chosen_[i]];
      runs_.push_back({static_cast<int>(kinds_.size()), round.repeat});
      kinds_.push_back(kind);
    }
  }
}

/// The busiest classes, without those that another one is busy with wherever they are.
void PipelineTime::choose_resources() {
  const std::size_t classes = classes_->classes();
  std::vector<double> total(classes, 0);
  for (const ProfiledPhase& phase : phases_) {
    const auto column = classes_->column(phase.profile->total_column);
    for (std::size_t i = 0; i < classes; ++i) total[i] += phase.share * static_cast<double>(column[i]);
  }
  resources_ = 0;
  busiest_ = 0;
  std::vector<bool> is_out(classes, false);
  while (resources_ < most_resources) {
    std::size_t best = classes;
    for (std::size_t i = 0; i < classes; ++i) {
      if (!is_out[i] && total[i] > 0 && (best == classes || total[i] > total[best])) best = i;
    }
    if (best == classes) break;
    is_out[best] = true;
    bool is_covered = false;
    for (std::size_t j = 0; j < resources_ && !is_covered; ++j) {
      is_covered = std::ranges::all_of(phases_, [&](const ProfiledPhase& phase) {
        const auto column = classes_->column(phase.profile->total_column);
        return column[best] <= column[chosen_[j]];
      });
    }
    if (is_covered) continue;
    if (resources_ == 0) {
      busiest_ = total[best];
      busiest_class_ = best;
    }
    chosen_[resources_++] = best;
  }
}

double PipelineTime::least(double bytes, int chunks) const {
  double alone = 0;
  for (const ProfiledPhase& phase : phases_) alone += phase_time(phase, bytes / chunks, step_overhead_);
  return std::max(alone, busiest_ * bytes);
}

double PipelineTime::of(double bytes, int chunks) {
  const double chunk = bytes / chunks;
  int rounds = 0;
  for (const Run& run : runs_) rounds += run.rounds;
  const int together = (rounds + most_rounds - 1) / most_rounds;

  timed_.clear();
  sequence_.clear();
  for (const Run& run : runs_) {
    const Kind& kind = kinds_[static_cast<std::size_t>(run.kind)];
    const double b = chunk * kind.share;
    const double each = rounds_time(*kind.round, b, step_overhead_) / kind.round->repeat;
    const int steps = (run.rounds + together - 1) / together;
    const double scale = static_cast<double>(run.rounds) / steps;
    Timed timed{};
    timed.duration = scale * each;
    timed.stream_index = static_cast<std::size_t>(std::max(kind.stream, 0));
    timed.issue = scale * kind.round->sends * step_overhead_;
    const double edge = std::max(kind.round->us_per_byte, kind.round->slowest_edge);
    timed.stream = kind.stream < 0 ? 0 : scale * (step_overhead_ + edge * b);
    for (std::size_t i = 0; i < resources_; ++i)
      timed.busy[i] = scale * static_cast<double>(kind.load[i]) * b;
    for (int i = 0; i < steps; ++i) sequence_.push_back(static_cast<int>(timed_.size()));
    timed_.push_back(timed);
  }
  if (chunks == 1) {
    double time = 0;
    for (const int at : sequence_) time += timed_[static_cast<std::size_t>(at)].duration;
    return time;
  }
  ready_.assign(static_cast<std::size_t>(chunks), 0);
  stream_free_.assign(most_dimensions, 0);
  double issue_free = 0;
  double busy_until[most_resources] = {};
  const int steps = static_cast<int>(sequence_.size());
  for (int slot = 0; slot < steps + chunks - 1; ++slot) {
    for (int c = std::max(0, slot - steps + 1); c <= std::min(chunks - 1, slot); ++c) {
      const auto at = static_cast<std::size_t>(sequence_[static_cast<std::size_t>(slot - c)]);
      const Timed& now = timed_[at];
      double& ready = ready_[static_cast<std::size_t>(c)];
      double start = std::max(ready, issue_free);
      if (now.stream > 0) start = std::max(start, stream_free_[now.stream_index]);
      for (std::size_t i = 0; i < resources_; ++i) {
        if (now.busy[i] > 0) start = std::max(start, busy_until[i]);
      }
      issue_free = start + now.issue;
      if (now.stream > 0) stream_free_[now.stream_index] = start + now.stream;
      for (std::size_t i = 0; i < resources_; ++i) {
        if (now.busy[i] > 0) busy_until[i] = start + now.busy[i];
      }
      ready = start + now.duration;
    }
  }
  return *std::ranges::max_element(ready_);
}

}  // namespace ddl::topology
