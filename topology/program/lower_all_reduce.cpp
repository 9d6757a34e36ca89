#include <algorithm>
#include <iterator>

#include "topology/program/lowering.hpp"

namespace ddl::topology {
namespace {

bool is_up(PhaseKind kind) {
  return kind == PhaseKind::reduce_scatter || kind == PhaseKind::reduce || kind == PhaseKind::all_reduce;
}

/// One rank's path of a chunk through the phases. The rank works on parts of the chunk: on one, or after
/// scattering over a ragged first dimension on one for each segment of its piece.
class ChunkReduction {
 public:
  ChunkReduction(const PlanInRounds& plan, const Place& place, Range chunk, StepList& steps)
      : plan_(plan), place_(place), chunk_(chunk), steps_(steps), parts_{{chunk, chunk.begin}} {
    for (const TimedPhase& timed : plan.phases) {
      if (timed.phase.dimension == 0 && is_up(timed.phase.kind)) first_ = &timed;
    }
  }

  void run() {
    const auto first_down = std::find_if(plan_.phases.begin(), plan_.phases.end(),
                                         [](const TimedPhase& timed) { return !is_up(timed.phase.kind); });
    int phase = 0;
    for (auto timed = plan_.phases.begin(); timed != first_down; ++timed) {
      go_up(*timed, phase++, std::next(timed) == first_down);
    }
    const bool is_finished = phase > 0 && std::prev(first_down)->phase.kind == PhaseKind::all_reduce;
    if (active_ && !is_finished) {
      const int rounds_up = first_down == plan_.phases.end() ? plan_.rounds : first_down->first_round;
      steps_.start_phase(std::max(phase - 1, 0), std::max(rounds_up - 1, 0));
      for (const Part& part : parts_) steps_.finish(0, part.range);
    }
    for (auto timed = first_down; timed != plan_.phases.end(); ++timed) go_down(*timed, phase++);
  }

 private:
  struct Part {
    Range range;
    std::size_t segment;  // where the part's segment starts; determines the owners
  };
  struct Taken {
    int dimension;
    std::vector<Part> parts;
  };

  void go_up(const TimedPhase& timed, int phase, bool is_last) {
    if (!active_) return;
    steps_.start_phase(phase, timed.first_round);
    taken_.push_back({timed.phase.dimension, parts_});
    for (const Part& part : parts_) {
      in_group(timed, part,
               [&](const Group& group) { lower_phase(steps_, timed, group, part.range, is_last); });
    }
    leave(timed);
  }

  /// Narrows what this rank works on to what the phase leaves it with.
  void leave(const TimedPhase& timed) {
    const int dimension = timed.phase.dimension;
    const int size = dimension == 0 ? plan_.grid.group_size(place_.group) : plan_.grid.sizes(dimension)[0];
    const int mine = dimension == 0 ? place_.member : place_.outer[as_index(dimension - 1)];
    if (timed.phase.kind == PhaseKind::reduce) active_ = mine == 0;
    if (timed.phase.kind != PhaseKind::reduce_scatter) return;
    const int piece = piece_of_member(timed.algorithm, size, mine);
    for (Part& part : parts_) part.range = Partition(part.range, size).piece(piece);
    if (dimension == 0 && plan_.grid.ragged()) cut_into_segments();
  }

  void go_down(const TimedPhase& timed, int phase) {
    // one_shot has no way down, and after a tree this rank may have skipped later dimensions.
    while (!taken_.empty() && taken_.back().dimension > timed.phase.dimension) taken_.pop_back();
    if (taken_.empty() || taken_.back().dimension != timed.phase.dimension) return;
    steps_.start_phase(phase, timed.first_round);
    for (const Part& part : taken_.back().parts) {
      in_group(timed, part, [&](const Group& group) { lower_phase(steps_, timed, group, part.range); });
    }
  }

  template <class Work>
  void in_group(const TimedPhase& timed, const Part& part, const Work& work) const {
    if (timed.phase.dimension == 0) return work(plan_.grid.first_dimension(place_));
    const std::function<int(int)> member_in = [&](int group) { return owner_in(group, part.segment); };
    work(plan_.grid.later_dimension(place_, timed.phase.dimension, member_in));
  }

  /// The member of a group of the first dimension that owns a segment.
  int owner_in(int group, std::size_t segment) const {
    if (!plan_.grid.ragged()) return place_.member;
    if (!first_ || first_->phase.kind != PhaseKind::reduce_scatter) return 0;
    const int size = plan_.grid.group_size(group);
    return member_of_piece(first_->algorithm, size, Partition(chunk_, size).piece_of(segment));
  }

  /// Cuts this rank's piece at the piece boundaries of all groups.
  void cut_into_segments() {
    const Range own = parts_[0].range;
    parts_.clear();
    if (own.empty()) return;
    std::vector<std::size_t> cuts{own.begin, own.end};
    for (const int size : plan_.grid.sizes(0)) {
      const Partition pieces(chunk_, size);
      for (int i = pieces.piece_of(own.begin) + 1; i < size && pieces.boundary(i) < own.end; ++i) {
        cuts.push_back(pieces.boundary(i));
      }
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) parts_.push_back({{cuts[i], cuts[i + 1]}, cuts[i]});
  }

  const PlanInRounds& plan_;
  const Place& place_;
  Range chunk_;
  StepList& steps_;
  const TimedPhase* first_ = nullptr;  // the first dimension's phase on the way up
  std::vector<Part> parts_;
  std::vector<Taken> taken_;  // the parts before each dimension in which this rank took part
  bool active_ = true;
};

}  // namespace

void lower_all_reduce(const PlanInRounds& plan, const Place& place, Range chunk, StepList& steps) {
  if (!chunk.empty()) ChunkReduction(plan, place, chunk, steps).run();
}

}  // namespace ddl::topology
