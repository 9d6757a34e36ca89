#include "topology/program/lowering.hpp"

#include <utility>

namespace ddl::topology {

Grid::Grid(const Decomposition& decomposition, std::span<const int> order)
    : decomposition_(&decomposition), order_(order) {
  group_sizes_.assign(decomposition.group_sizes().begin(), decomposition.group_sizes().end());
  std::sort(group_sizes_.begin(), group_sizes_.end());
  group_sizes_.erase(std::unique(group_sizes_.begin(), group_sizes_.end()), group_sizes_.end());
}

std::span<const int> Grid::sizes(int dimension) const {
  if (dimension == 0) return group_sizes_;
  return decomposition_->outer().subspan(as_index(dimension - 1), 1);
}

Place Grid::place(int position) const {
  Place place;
  place.group = decomposition_->group_of(position);
  place.member = position - decomposition_->group_begin(place.group);
  int rest = place.group;
  for (const int size : decomposition_->outer()) {
    place.outer.push_back(rest % size);
    rest /= size;
  }
  return place;
}

Grid::Line Grid::line(const Place& place, int dimension) const {
  const auto outer = decomposition_->outer();
  const auto here = as_index(dimension - 1);
  int stride = 1;
  for (const int size : outer.first(here)) stride *= size;
  return {place.group - place.outer[here] * stride, stride, outer[here]};
}

Group Grid::first_dimension(const Place& place) const {
  const int* members = order_.data() + decomposition_->group_begin(place.group);
  return {group_size(place.group), place.member, [members](int index) { return members[index]; }};
}

Group Grid::later_dimension(const Place& place, int dimension,
                            const std::function<int(int)>& member_in) const {
  const Line groups = line(place, dimension);
  return {groups.size, place.outer[as_index(dimension - 1)], [this, &member_in, groups](int index) {
            const int group = groups.first + index * groups.stride;
            return rank_at(group, member_in(group));
          }};
}

Group Grid::counted_from(Group group, int index) {
  const int size = group.size;
  return {size, (group.mine - index + size) % size,
          [size, index, at = std::move(group.rank_at)](int i) { return at((i + index) % size); }};
}

void StepList::start_part(int chunk) {
  if (chunk != chunk_) end_scratch_ = 0;
  chunk_ = static_cast<std::uint8_t>(chunk);
  first_scratch_ = end_scratch_;
}

void StepList::start_phase(int phase, int first_round) {
  phase_ = static_cast<std::uint8_t>(phase);
  first_round_ = first_round;
  scratch_taken_ = first_scratch_;
}

void StepList::to_wire(int round, std::span<const Range> ranges) {
  for (const Range& range : ranges) {
    add(StepKind::round, round, -1, range, residual_);
    residual_ += range.size();
  }
}

Range StepList::take_scratch(std::size_t size) {
  const std::size_t begin = count_ + scratch_taken_;
  scratch_taken_ += size;
  end_scratch_ = std::max(end_scratch_, scratch_taken_);
  scratch_ = std::max(scratch_, end_scratch_);
  return {begin, begin + size};
}

void StepList::add(StepKind kind, int round, int peer, Range range, std::size_t source) {
  if (range.empty()) return;
  steps_.push_back({.kind = kind,
                    .phase = phase_,
                    .chunk = chunk_,
                    .narrow = narrow_ && !is_local(kind),
                    .peer = peer,
                    .begin = range.begin,
                    .end = range.end,
                    .source = source});
  times_.push_back(static_cast<std::uint32_t>(first_round_ + round) + chunk_);
}

Program StepList::in_order() && {
  std::uint32_t end = 0;
  for (const std::uint32_t time : times_) end = std::max(end, time + 1);
  std::vector<std::size_t> next(end + std::size_t{1}, 0);
  for (const std::uint32_t time : times_) ++next[time + 1];
  for (std::size_t time = 0; time < end; ++time) next[time + 1] += next[time];

  Program program;
  program.steps.resize(steps_.size());
  std::size_t shares = 0;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    Step& step = program.steps[next[times_[i]]++];
    step = steps_[i];
    if (scratch_ == 0) continue;
    const std::size_t share = step.chunk % chunks_in_scratch;
    shares = std::max(shares, share + 1);
    if (step.begin >= count_) {
      step.begin += share * scratch_;
      step.end += share * scratch_;
    }
    if (has_source(step.kind) && step.source >= count_) step.source += share * scratch_;
  }
  program.wire = wire_;
  program.residual = residual_;
  program.scratch = shares * scratch_;
  return program;
}

}  // namespace ddl::topology
