#pragma once

#include <span>
#include <vector>

#include "topology/planner/phase_profile.hpp"

namespace ddl::topology {

/// A phase of a plan, and the part of the buffer that its members work on.
struct ProfiledPhase {
  const PhaseProfile* profile;
  double share;
  int dimension;
  bool is_down;                ///< Of an all-reduce: goes back over the streams of the way up.
  double ranges = 1;           ///< Messages that one of the pattern becomes, of a plan with one chunk.
  double ranges_of_chunk = 1;  ///< The same with several.

  [[nodiscard]] double messages(int chunks) const { return chunks == 1 ? ranges : ranges_of_chunk; }
};

/// Time of one of `chunks`, of `bytes`, alone in one phase.
double phase_time(const ProfiledPhase& phase, double bytes, int chunks, double step_overhead);

/// How long chunks take that follow one another through the phases.
///
/// A chunk's rounds come one after the other; each takes as long as its messages take side by side. Chunks
/// are held up in two ways. Messages of a round go over the same streams as those of other chunks in that
/// round (in a ring: in all its rounds), which keep the schedule's order. And what a link or a rank's issue
/// is busy with in all chunks cannot take less than that, after the first chunk's way to it and before the
/// last one's way from it.
class PipelineTime {
 public:
  static constexpr int most_rounds = 600;

  PipelineTime(const ResourceClasses& classes, double step_overhead)
      : classes_(&classes), step_overhead_(step_overhead) {}

  void set_phases(std::span<const ProfiledPhase> phases);

  /// At most what `of` returns, and quick: the second way of being held up alone.
  double least(double bytes, int chunks);
  /// Longer sequences of rounds than `most_steps` are taken several at a time.
  double of(double bytes, int chunks, int most_steps = most_rounds);

 private:
  static constexpr std::size_t most_resources = 6;

  /// A round that is repeated.
  struct Rounds {
    const ProfileRound* round;
    double share;
    std::size_t stream;
    std::size_t phase;
  };
  /// Several rounds, if there are many, as one.
  struct Timed {
    double duration = 0;
    double issue = 0;
    double held = 0;  // its stream
    std::size_t stream = 0;
    bool uses_scratch = false;
    double busy[most_resources] = {};  // of busy_
  };
  /// Where a class of resources is busy, as indices into rounds_.
  struct Busy {
    double us_per_byte = 0;
    std::size_t first = 0;
    std::size_t last = 0;
    std::size_t of_class = 0;
  };

  /// Of phases with the same column and share.
  struct ColumnLoad {
    std::size_t column;
    double unit;
    double share;
  };

  /// Messages that one of the pattern becomes.
  [[nodiscard]] double messages(const Rounds& rounds, int chunks) const {
    return phases_[rounds.phase].messages(chunks);
  }
  [[nodiscard]] double messages_time(std::size_t of_class, int chunks) const;
  [[nodiscard]] double issue(int chunks) const;
  double in_order(int chunks, std::size_t resources, bool with_issue);
  void choose_resources();

  const ResourceClasses* classes_;
  double step_overhead_;
  std::vector<ProfiledPhase> phases_;
  std::vector<Rounds> rounds_;
  std::size_t streams_ = 0;
  std::vector<Busy> busy_;
  int crossing_ = 0;  // kinds of streams on the busiest resource, those to several others twice

  std::vector<ColumnLoad> loads_;
  std::vector<double> total_;
  std::vector<std::size_t> order_;
  std::vector<double> durations_;
  std::vector<Timed> timed_;
  std::vector<std::size_t> sequence_;
  std::vector<double> ready_;
  std::vector<double> stream_free_;
};

}  // namespace ddl::topology
