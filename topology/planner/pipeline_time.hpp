#pragma once

#include <span>
#include <vector>

#include "topology/planner/phase_profile.hpp"

namespace ddl::topology {

/// A phase of a plan, with the part of the buffer that its members work on.
struct ProfiledPhase {
  const PhaseProfile* profile;
  double share;
  int dimension;
  bool is_down;                ///< An all_gather or broadcast: uses its dimension's streams in reverse.
  double ranges = 1;           ///< Messages for each message of the pattern, if the plan has one chunk.
  double ranges_of_chunk = 1;  ///< The same with several chunks.

  [[nodiscard]] double messages(int chunks) const { return chunks == 1 ? ranges : ranges_of_chunk; }
};

/// us that a chunk of `bytes`, one of `chunks`, takes alone in one phase.
double phase_time(const ProfiledPhase& phase, double bytes, int chunks, double step_overhead);

/// Predicts how long chunks take that follow one another through the phases.
///
/// A chunk's rounds follow one another; each takes as long as its messages take when they are in flight
/// together. Chunks are delayed in two ways. First, messages of a round use the same streams as those of
/// other chunks in that round (in a ring: in all its rounds), and streams keep the schedule's order. Second,
/// the work of all chunks on a link, or on issuing a rank's messages, takes its time, after the first chunk
/// has reached it and before the last one goes on.
class PipelineTime {
 public:
  static constexpr int most_rounds = 600;

  PipelineTime(ResourceClasses& classes, double step_overhead)
      : classes_(&classes), step_overhead_(step_overhead) {}

  void set_phases(std::span<const ProfiledPhase> phases);

  /// A quick lower bound of `of`, from the second kind of delay alone.
  double least(double bytes, int chunks);
  /// Takes several rounds together if there are more than `most_steps`.
  double of(double bytes, int chunks, int most_steps = most_rounds);

 private:
  static constexpr std::size_t most_resources = 6;

  /// A repeated round.
  struct Rounds {
    const ProfileRound* round;
    double share;
    std::size_t stream;
    std::size_t phase;
  };
  /// One round, or several taken together.
  struct Timed {
    double duration = 0;
    double issue = 0;
    double held = 0;  // us for which its stream is occupied
    std::size_t stream = 0;
    bool uses_scratch = false;
    double busy[most_resources] = {};  // by index into busy_
  };
  /// A class of resources, and the first and last of rounds_ that keep it busy.
  struct Busy {
    double us_per_byte = 0;
    std::size_t first = 0;
    std::size_t last = 0;
    std::uint32_t of_class = 0;
  };

  /// Phases with the same column and share, taken together.
  struct ColumnLoad {
    std::size_t column;
    double unit;
    double share;
  };

  /// Messages for each message of the pattern.
  [[nodiscard]] double messages(const Rounds& rounds, int chunks) const {
    return phases_[rounds.phase].messages(chunks);
  }
  [[nodiscard]] double messages_time(std::uint32_t of_class, int chunks) const;
  [[nodiscard]] double issue(int chunks) const;
  double in_order(int chunks, std::size_t resources, bool with_issue);
  void choose_resources();

  ResourceClasses* classes_;
  double step_overhead_;
  std::vector<ProfiledPhase> phases_;
  std::vector<Rounds> rounds_;
  std::size_t streams_ = 0;
  std::vector<Busy> busy_;
  int crossing_ = 0;  // streams over the busiest resource; those with several messages a round count twice

  std::vector<ColumnLoad> loads_;
  std::vector<double> total_;
  std::vector<std::uint32_t> order_;
  std::vector<double> durations_;
  std::vector<Timed> timed_;
  std::vector<std::size_t> sequence_;
  std::vector<double> ready_;
  std::vector<double> stream_free_;
};

}  // namespace ddl::topology
