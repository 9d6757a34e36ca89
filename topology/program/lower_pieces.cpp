// Reduce-scatter and all-gather: each piece of the result belongs to a rank anywhere in the grid.

#include <algorithm>
#include <vector>

#include "topology/program/lowering.hpp"

namespace ddl::topology {
namespace {

/// A phase for one rank, which may be in several groups of a dimension after a ragged first one.
struct Exchange {
  const TimedPhase& timed;
  int phase;
  Group group;
  std::vector<std::vector<int>> ranks;  // by piece of the group: the ranks whose pieces belong to it
};

/// The pieces of one chunk: the part of every rank's piece that is in the chunk.
class PiecesOfRanks final : public Shares {
 public:
  PiecesOfRanks(std::size_t piece, int chunks, int chunk)
      : piece_(piece), part_(Partition({0, piece}, chunks).piece(chunk)) {}

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

void lower_pieces(const PlanInRounds& plan, const Place& place, std::size_t count, StepList& steps) {
  const bool reduces = plan.plan->collective == Collective::reduce_scatter;
  const PieceGrid pieces(*plan.plan, plan.grid, place);
  const std::vector<Exchange> exchanges = pieces.exchanges(plan.phases);
  const int rank = plan.grid.rank_at(place.group, place.member);
  for (int chunk = 0; chunk < plan.chunks; ++chunk) {
    steps.start_chunk(chunk);
    PiecesOfRanks shares(count / plan.plan->order.size(), plan.chunks, chunk);
    int phase = -1;
    for (const Exchange& exchange : exchanges) {
      const TimedPhase& timed = exchange.timed;
      // Groups of one phase run in the same rounds, so they must not share scratch.
      if (exchange.phase != phase) steps.start_phase(phase = exchange.phase, timed.first_round);
      shares.set(exchange);
      lower_phase(steps, timed, exchange.group, shares);
    }
    if (!reduces) continue;
    steps.start_phase(std::max(phase, 0), std::max(plan.rounds - 1, 0));
    steps.finish(0, shares.of_rank(rank));
  }
}

}  // namespace ddl::topology
