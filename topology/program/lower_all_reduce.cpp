#include <algorithm>
#include <iterator>
#include <vector>

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

// Reduce-scatter and all-gather: each piece of the result belongs to a rank anywhere in the grid.

namespace {

/// A phase for one rank, which may be in several groups of a dimension after a ragged first one.
struct Exchange {
  const TimedPhase& timed;
  int phase;
  Group group;
  std::vector<std::vector<int>> ranks;  // by piece of the group: the ranks whose pieces belong to it
};

/// One part of every rank's piece.
class PiecesOfRanks final : public Shares {
 public:
  PiecesOfRanks(std::size_t piece, int parts, int part)
      : piece_(piece), part_(Partition({0, piece}, parts).piece(part)) {}

  void set(const Exchange& exchange) { ranks_ = &exchange.ranks; }

  [[nodiscard]] Range of_rank(int rank) const {
    const std::size_t begin = as_index(rank) * piece_;
    return {begin + part_.begin, begin + part_.end};
  }

  std::span<const Range> pieces(int first, int last) override {
    found_.clear();
    if (part_.empty()) return found_;
    gathered_.clear();
    for (int i = first; i < last; ++i) {
      const auto& ranks = (*ranks_)[as_index(i)];
      gathered_.insert(gathered_.end(), ranks.begin(), ranks.end());
    }
    std::ranges::sort(gathered_);
    for (const int rank : gathered_) {
      const Range range = of_rank(rank);
      if (!found_.empty() && found_.back().end == range.begin) {
        found_.back().end = range.end;
      } else {
        found_.push_back(range);
      }
    }
    return found_;
  }

 private:
  std::size_t piece_;
  Range part_;  // of every rank's piece
  const std::vector<std::vector<int>>* ranks_ = nullptr;
  std::vector<int> gathered_;
  std::vector<Range> found_;
};

/// Pieces are numbered by their rank's member number m in its group of the first dimension. In each group,
/// member m modulo the group's size handles the pieces with number m. In later dimensions, the data of these
/// members moves to the group of each piece's rank.
class PieceGrid {
 public:
  PieceGrid(const Plan& plan, const Grid& grid, const Place& place)
      : decomposition_(plan.decomposition), grid_(grid), place_(place) {}

  [[nodiscard]] std::vector<Exchange> exchanges(std::span<const TimedPhase> phases) const {
    std::vector<Exchange> result;
    for (std::size_t i = 0; i < phases.size(); ++i) {
      const TimedPhase& timed = phases[i];
      const int phase = static_cast<int>(i);
      if (timed.phase.dimension == 0) {
        result.push_back({timed, phase, grid_.first_dimension(place_), in_first(timed.algorithm)});
        continue;
      }
      const int step = decomposition_.group_size(place_.group);
      for (int member = place_.member; member < decomposition_.size(0); member += step) {
        result.push_back({timed, phase, line(timed.phase.dimension, member), in_line(timed, member)});
      }
    }
    return result;
  }

 private:
  [[nodiscard]] std::vector<std::vector<int>> in_first(Algorithm algorithm) const {
    const int size = decomposition_.group_size(place_.group);
    std::vector<std::vector<int>> ranks(as_index(size));
    for (int piece = 0; piece < size; ++piece) {
      auto& mine = ranks[as_index(piece)];
      for (int group = 0; group < decomposition_.groups(); ++group) {
        for (int member = member_of_piece(algorithm, size, piece); member < decomposition_.group_size(group);
             member += size) {
          mine.push_back(grid_.rank_at(group, member));
        }
      }
    }
    return ranks;
  }

  [[nodiscard]] Group line(int dimension, int member) const {
    const Grid::Line groups = grid_.line(place_, dimension);
    const auto rank = [this, groups, member](int index) {
      const int group = groups.first + index * groups.stride;
      return grid_.rank_at(group, member % grid_.group_size(group));
    };
    return {groups.size, place_.outer[as_index(dimension - 1)], rank};
  }

  [[nodiscard]] std::vector<std::vector<int>> in_line(const TimedPhase& timed, int member) const {
    const auto [first, stride, size] = grid_.line(place_, timed.phase.dimension);
    std::vector<std::vector<int>> ranks(as_index(size));
    for (int piece = 0; piece < size; ++piece) {
      auto& mine = ranks[as_index(piece)];
      const int index = member_of_piece(timed.algorithm, size, piece);
      // Coordinates in earlier dimensions are this rank's; those in later dimensions take all values.
      for (int group = first % stride + index * stride; group < decomposition_.groups();
           group += stride * size) {
        if (member < decomposition_.group_size(group)) mine.push_back(grid_.rank_at(group, member));
      }
    }
    return ranks;
  }

  const Decomposition& decomposition_;
  const Grid& grid_;
  const Place& place_;
};

}  // namespace

void lower_pieces(std::span<const PlanInRounds> orders, int rank, std::size_t count, StepList& steps) {
  const Plan& plan = *orders.front().plan;
  const bool reduces = plan.collective == Collective::reduce_scatter;
  const std::size_t parts = orders.size();
  std::vector<Place> places;
  std::vector<PieceGrid> grids;
  std::vector<std::vector<Exchange>> exchanges;
  places.reserve(parts);
  grids.reserve(parts);  // an exchange refers to its grid, and the grid to its place
  for (const PlanInRounds& order : orders) {
    places.push_back(order.place(rank));
    grids.emplace_back(plan, order.grid, places.back());
    exchanges.push_back(grids.back().exchanges(order.phases));
  }
  const int all = plan.chunks * static_cast<int>(parts);
  for (int index = 0; index < all; ++index) {
    const std::size_t part = as_index(index) % parts;
    steps.start_part(index / static_cast<int>(parts));
    PiecesOfRanks shares(count / plan.order.size(), all, index);
    int phase = -1;
    for (const Exchange& exchange : exchanges[part]) {
      const TimedPhase& timed = exchange.timed;
      // Groups of one phase run in the same rounds, so they must not share scratch.
      if (exchange.phase != phase) steps.start_phase(phase = exchange.phase, timed.first_round);
      shares.set(exchange);
      lower_phase(steps, timed, exchange.group, shares);
    }
    if (!reduces) continue;
    steps.start_phase(std::max(phase, 0), std::max(orders[part].rounds - 1, 0));
    steps.finish(0, shares.of_rank(rank));
  }
}

}  // namespace ddl::topology
