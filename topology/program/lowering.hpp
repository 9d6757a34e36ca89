#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ddl/topology/plan.hpp"
#include "ddl/topology/schedule.hpp"
#include "topology/plan/algorithms.hpp"

// What lowerings share: ranges, groups of ranks, and the list of steps that they write.
namespace ddl::topology {

struct Range {
  std::size_t begin;
  std::size_t end;

  [[nodiscard]] std::size_t size() const noexcept { return end - begin; }
  [[nodiscard]] bool empty() const noexcept { return begin == end; }
};

/// Cuts `whole` into `parts` pieces whose sizes differ by at most one, the longer ones first.
class Partition {
 public:
  Partition(Range whole, int parts)
      : origin_(whole.begin),
        parts_(as_index(parts)),
        base_(whole.size() / parts_),
        longer_(whole.size() % parts_) {}

  /// Where piece `index` starts; `index` may be the number of parts.
  [[nodiscard]] std::size_t boundary(int index) const {
    const auto i = as_index(index);
    return origin_ + base_ * i + std::min(i, longer_);
  }
  [[nodiscard]] Range piece(int index) const { return {boundary(index), boundary(index + 1)}; }
  /// Pieces `first` to `last`, without the last one.
  [[nodiscard]] Range pieces(int first, int last) const { return {boundary(first), boundary(last)}; }
  /// The piece that holds `element`, which must be inside the whole.
  [[nodiscard]] int piece_of(std::size_t element) const {
    const std::size_t offset = element - origin_;
    const std::size_t in_longer = longer_ * (base_ + 1);
    const std::size_t index =
        offset < in_longer ? offset / (base_ + 1) : longer_ + (offset - in_longer) / base_;
    return static_cast<int>(index);
  }

 private:
  std::size_t origin_;
  std::size_t parts_;
  std::size_t base_;
  std::size_t longer_;
};

/// What the members of a group divide among them, as numbered pieces: in a reduce-scatter each ends with one,
/// in an all-gather it starts with one. Which piece is whose is up to the algorithm (`piece_of_member`).
class Shares {
 public:
  virtual ~Shares() = default;
  /// The ranges of pieces [first, last), none empty, ascending and apart from one another. Valid until the
  /// next call.
  virtual std::span<const Range> pieces(int first, int last) = 0;
  std::span<const Range> piece(int index) { return pieces(index, index + 1); }
};

/// A range cut into equal pieces.
class EqualShares final : public Shares {
 public:
  EqualShares(Range whole, int size) : pieces_(whole, size) {}

  std::span<const Range> pieces(int first, int last) override {
    found_[0] = pieces_.pieces(first, last);
    return std::span(found_).first(found_[0].empty() ? 0 : 1);
  }

 private:
  Partition pieces_;
  std::array<Range, 1> found_{};
};

/// The ranks that work together in one dimension, by index, as one of them sees it.
struct Group {
  int size;
  int mine;                         ///< This rank's index.
  std::function<int(int)> rank_at;  ///< The rank at an index of [0, size).
};

/// Where a rank is in the grid.
struct Place {
  int group = 0;           ///< Of the first dimension.
  int member = 0;          ///< Index in it.
  std::vector<int> outer;  ///< Coordinates in the second dimension on.
};

/// Ranks by their coordinates. Refers to its arguments.
class Grid {
 public:
  Grid(const Decomposition& decomposition, std::span<const int> order);

  [[nodiscard]] Place place(int position) const;
  [[nodiscard]] int group_size(int group) const { return decomposition_->group_size(group); }
  /// The sizes that groups of a dimension have, each once.
  [[nodiscard]] std::span<const int> sizes(int dimension) const;
  [[nodiscard]] bool ragged() const { return decomposition_->ragged(); }
  /// The rank that is a member of a group of the first dimension.
  [[nodiscard]] int rank_at(int group, int member) const {
    return order_[as_index(decomposition_->group_begin(group) + member)];
  }
  /// Groups of the first dimension along a later one: group `first` and `size` - 1 others, `stride` apart.
  struct Line {
    int first;
    int stride;
    int size;
  };
  /// The one that a place is in.
  [[nodiscard]] Line line(const Place& place, int dimension) const;

  /// The group of the first dimension that a place is in, its first member at index 0.
  [[nodiscard]] Group first_dimension(const Place& place) const;
  /// The group of a later dimension that a place is in; `member_in(g)` takes part for the group g of the
  /// first dimension. Refers to `member_in` as long as the result lives.
  [[nodiscard]] Group later_dimension(const Place& place, int dimension,
                                      const std::function<int(int)>& member_in) const;
  /// The same group, counted from the member at `index` on.
  static Group counted_from(Group group, int index);

 private:
  const Decomposition* decomposition_;
  std::span<const int> order_;
  std::vector<int> group_sizes_;
};

/// Chunks take turns in so much scratch. More would only let more chunks be in the same phase at once.
constexpr std::size_t chunks_in_scratch = 4;

/// Collects one rank's steps, chunk by chunk and phase by phase, and brings them into the order of their
/// rounds. Empty ranges are passed over.
class StepList {
 public:
  StepList(std::size_t count, DataType wire) : count_(count), wire_(wire) {}

  void start_chunk(int chunk) { chunk_ = static_cast<std::uint8_t>(chunk); }
  /// Rounds given from here on count from `first_round` of the chunk; scratch is taken anew.
  void start_phase(int phase, int first_round);

  void send(int round, int peer, Range range) { add(StepKind::send, round, peer, range); }
  void send(int round, int peer, std::span<const Range> ranges) {
    for (const Range& range : ranges) send(round, peer, range);
  }
  void receive(int round, int peer, Range range) { add(StepKind::receive, round, peer, range); }
  void receive(int round, int peer, std::span<const Range> ranges) {
    for (const Range& range : ranges) receive(round, peer, range);
  }
  void receive_reduce(int round, int peer, Range range) { add(StepKind::receive_reduce, round, peer, range); }
  /// target = target op source
  void reduce(int round, Range target, std::size_t source) {
    add(StepKind::reduce, round, -1, target, source);
  }
  void copy(int round, Range target, std::size_t source) { add(StepKind::copy, round, -1, target, source); }
  void finish(int round, Range range) { add(StepKind::finish, round, -1, range); }
  /// range = the nearest values of the plan's wire
  void to_wire(int round, std::span<const Range> ranges);
  /// Whether messages from here on are narrow.
  void set_narrow(bool narrow) noexcept { narrow_ = narrow; }
  /// Scratch for `size` elements. Other phases of the chunk use the same, as do other chunks.
  Range take_scratch(std::size_t size);

  /// Steps by round + chunk, then chunk, then as they were given.
  Program in_order() &&;

 private:
  void add(StepKind kind, int round, int peer, Range range, std::size_t source = 0);

  std::size_t count_;
  DataType wire_;
  std::uint8_t chunk_ = 0;
  std::uint8_t phase_ = 0;
  int first_round_ = 0;
  std::size_t scratch_taken_ = 0;
  std::size_t scratch_ = 0;  // of a chunk
  bool narrow_ = false;
  std::size_t residual_ = 0;
  std::vector<Step> steps_;
  std::vector<std::uint32_t> times_;  // of each step
};

/// A phase with the rounds of a chunk that it takes: the same for all groups.
struct TimedPhase {
  Phase phase;
  Algorithm algorithm;
  Carrier carrier;
  int first_round;
  bool narrow = false;        ///< Messages travel in the plan's wire: on the way up each is rounded first.
  bool rounds_first = false;  ///< It is the first narrow one on the way down: owners round what they have.
  std::vector<GroupPattern> patterns = {};  ///< Of each size that its groups have.

  [[nodiscard]] const GroupPattern& pattern(int size) const;
  /// Whether what several members send at once is reduced over shared memory: one receive_reduce after the
  /// other, in one pass without scratch. Else it is received side by side into scratch, and added in one
  /// order.
  [[nodiscard]] bool in_one_pass() const { return carrier == Carrier::shared_memory; }
};

/// Steps of a group's member in a phase, over a range that all members hold. `finishes`: an all-reduce in one
/// phase is finished where its sums are first complete.
void lower_phase(StepList& steps, const TimedPhase& timed, const Group& group, Shares& shares);
void lower_phase(StepList& steps, const TimedPhase& timed, const Group& group, Range range,
                 bool finishes = false);

/// What lowering needs of a plan, for all ranks. Refers to the plan.
struct PlanInRounds {
  explicit PlanInRounds(const Plan& of);

  const Plan* plan;
  Grid grid;
  std::vector<TimedPhase> phases;
  int rounds = 0;  ///< Of a chunk.
  int chunks;
};

/// Steps of the rank at `place` for one chunk.
void lower_all_reduce(const PlanInRounds& plan, const Place& place, Range chunk, StepList& steps);
/// The same of a broadcast or reduce.
void lower_rooted(const PlanInRounds& plan, const Place& place, const Place& root, Range chunk,
                  StepList& steps);

/// Steps of the rank at `place` for all chunks of a reduce_scatter or all_gather, of `count` elements in all.
void lower_pieces(const PlanInRounds& plan, const Place& place, std::size_t count, StepList& steps);

}  // namespace ddl::topology
