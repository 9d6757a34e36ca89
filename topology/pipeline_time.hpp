#pragma once

#include <span>
#include <vector>

#include "topology/phase_profile.hpp"

namespace ddl::topology {

/// A phase of a plan, and the part of the buffer that its members work on.
struct ProfiledPhase {
  const PhaseProfile* profile;
  double share;
  int dimension;
};

/// Time of a chunk of `bytes` alone in one phase.
double phase_time(const ProfiledPhase& phase, double bytes, double step_overhead);

/// How long chunks take that follow one another through the phases.
///
/// A chunk's rounds come one after the other. A round takes as long as its messages take side by side, and
/// keeps what it uses (links, the ranks' issue, streams) busy for its part of that; what is busy makes
/// other chunks wait. That is the schedule's own order, with rounds in place of messages.
class PipelineTime {
 public:
  PipelineTime(const ResourceClasses& classes, double step_overhead)
      : classes_(&classes), step_overhead_(step_overhead) {}

  void set_phases(std::span<const ProfiledPhase> phases);

  /// At most what `of` returns, and quick: one chunk's way, and what the busiest link carries.
  [[nodiscard]] double least(double bytes, int chunks) const;
  double of(double bytes, int chunks);

  /// The class of resources that is busy the longest.
  [[nodiscard]] std::size_t busiest_class() const noexcept { return busiest_class_; }

 private:
  static constexpr std::size_t most_resources = 6;

  struct Kind {
    const ProfileRound* round;
    double share;
    int stream;  // -1: none
    float load[most_resources];
  };
  struct Run {
    int kind;
    int rounds;
  };
  struct Timed {
    double duration;
    double issue;
    double stream;
    std::size_t stream_index;
    double busy[most_resources];
  };

  void choose_resources();

  const ResourceClasses* classes_;
  double step_overhead_;
  std::vector<ProfiledPhase> phases_;
  std::vector<Kind> kinds_;
  std::vector<Run> runs_;
  std::size_t resources_ = 0;
  std::size_t chosen_[most_resources] = {};
  double busiest_ = 0;  // us a byte
  std::size_t busiest_class_ = 0;
  std::vector<Timed> timed_;
  std::vector<int> sequence_;
  std::vector<double> ready_;
  std::vector<double> stream_free_;
};

}  // namespace ddl::topology
