#include "collectives/program/prepared_program.hpp"

#include <algorithm>
#include <utility>

#include "topology/refuse.hpp"

namespace ddl::collectives {

using topology::Program;
using topology::Step;
using topology::StepKind;

namespace {

/// Throws unless the program can be run.
Program checked(Program program, std::size_t count, std::size_t ranks) {
  const std::size_t size = count + program.scratch;
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    const Step& step = program.steps[i];
    // Buffer and scratch memory are not contiguous.
    const auto is_in_one_piece = [&](std::size_t begin, std::size_t end) {
      return begin < end && end <= size && (end <= count || begin >= count);
    };
    if (is_in_one_piece(step.begin, step.end) &&
        (!has_source(step.kind) || is_in_one_piece(step.source, step.source + step.size())) &&
        (is_local(step.kind) || (step.peer >= 0 && as_index(step.peer) < ranks))) {
      continue;
    }
    fail_with(ErrorCode::internal,
              "step {} cannot be run: found {}, expected one of {} ranks as its peer and ranges "
              "inside a buffer of {} or scratch memory of {} elements",
              i, to_string(step), ranks, count, program.scratch);
  }
  return program;
}

enum class Written { no, yes, partly };

class WrittenElements {
 public:
  [[nodiscard]] Written look(std::size_t begin, std::size_t end) const {
    std::size_t written = 0;
    auto range = ranges_.upper_bound(begin);
    if (range != ranges_.begin()) --range;
    for (; range != ranges_.end() && range->first < end; ++range) {
      const std::size_t from = std::max(begin, range->first);
      const std::size_t to = std::min(end, range->second);
      if (from < to) written += to - from;
    }
    if (written == 0) return Written::no;
    return written == end - begin ? Written::yes : Written::partly;
  }
  void add(std::size_t begin, std::size_t end) {
    auto range = ranges_.lower_bound(begin);
    if (range != ranges_.begin() && std::prev(range)->second >= begin) --range;
    while (range != ranges_.end() && range->first <= end) {
      begin = std::min(begin, range->first);
      end = std::max(end, range->second);
      range = ranges_.erase(range);
    }
    ranges_.emplace(begin, end);
  }
  [[nodiscard]] std::vector<PreparedProgram::Range> rest_of(std::size_t count) const {
    std::vector<PreparedProgram::Range> rest;
    std::size_t at = 0;
    for (const auto& [begin, end] : ranges_) {
      if (begin >= count) break;
      if (at < begin) rest.push_back({at, begin});
      at = end;
    }
    if (at < count) rest.push_back({at, count});
    return rest;
  }

 private:
  std::map<std::size_t, std::size_t> ranges_;  // end by begin; disjoint and not adjacent
};

}  // namespace

class PreparedProgram::Builder {
 public:
  Builder(PreparedProgram& result, std::span<const int> ranks, const Ways& ways)
      : result_(result),
        steps_(result.program_.steps),
        dependencies_(result.program_),
        ranks_(ranks),
        ways_(ways),
        size_(static_cast<std::uint32_t>(steps_.size())) {}

  void build() {
    find_ways();
    find_reads();
    connect_runs();
    find_answers();
    find_copies();
    order();
  }

 private:
  [[nodiscard]] std::vector<StepWay>& ways() { return result_.ways_; }
  [[nodiscard]] bool is_send_to_member(std::uint32_t step) const {
    return steps_[step].kind == StepKind::send && result_.ways_[step].member != Ways::no_member;
  }

  void find_ways() {
    std::map<std::pair<int, bool>, std::uint32_t> next;
    for (std::uint32_t i = 0; i < size_; ++i) {
      const Step& step = steps_[i];
      StepWay& way = ways().emplace_back();
      if (step.phase != steps_[0].phase) result_.has_one_phase_ = false;
      if (step.kind == StepKind::round) result_.rounds_ = true;
      if (step.kind == StepKind::receive_reduce || step.kind == StepKind::reduce) result_.reduces_ = true;
      if (is_local(step.kind)) continue;
      const bool sends = step.kind == StepKind::send;
      way.peer = ranks_[as_index(step.peer)];
      if (!ways_.mpi_alone) way.member = ways_.member[as_index(way.peer)];
      way.message = next[{step.peer, sends}]++;
      if (!sends) result_.elements_from_[way.peer] += step.size();
      result_.longest_message_ = std::max(result_.longest_message_, step.size());
      if (way.by_network()) {
        way.slot = result_.transfers_++;
        if (step.kind == StepKind::receive_reduce) result_.net_reduces_.push_back(i);
        continue;
      }
      way.slot = sends ? result_.posts_++ : result_.arrivals_++;
      (sends ? result_.sends_ : result_.receives_).add(way.member, i);
      if (std::ranges::find(result_.members_, way.member) == result_.members_.end()) {
        result_.members_.push_back(way.member);
      }
    }
    std::ranges::sort(result_.members_);
    for (std::uint32_t i = size_; i-- > 0;) {
      ways()[i].end = i + 1 < size_ && steps_[i + 1].joined ? ways()[i + 1].end : i + 1;
    }
  }

  void find_reads() {
    WrittenElements written;
    const auto reads_input = [&](std::size_t begin, std::size_t end) {
      if (begin >= result_.count_) return false;
      const Written found = written.look(begin, end);
      if (found == Written::partly) result_.reads_mixtures_ = true;
      return found == Written::no;
    };
    for (std::uint32_t i = 0; i < size_; ++i) {
      const Step& step = steps_[i];
      const bool reads_range = step.kind != StepKind::receive && step.kind != StepKind::copy;
      ways()[i].source_is_input =
          has_source(step.kind) && reads_input(step.source, step.source + step.size());
      ways()[i].reads_input = reads_range && reads_input(step.begin, step.end);
      if (step.kind != StepKind::send) written.add(step.begin, step.end);
    }
    result_.unwritten_ = written.rest_of(result_.count_);
  }

  void connect_runs() {
    result_.missing_.assign(size_, 0);
    result_.after_begin_.assign(size_ + std::size_t{1}, 0);
    std::vector<std::uint32_t> after;
    for (std::uint32_t run = 0; run < size_; ++run) {
      if (!steps_[run].joined) {
        ++result_.runs_;
        after.clear();
        const std::uint32_t end = result_.end_of_run(run);
        for (std::uint32_t i = run; i < end; ++i) {
          for (const std::uint32_t later : dependencies_.after(i)) {
            if (later >= end) after.push_back(result_.begin_of_run(later));
          }
        }
        std::ranges::sort(after);
        after.erase(std::unique(after.begin(), after.end()), after.end());
        for (const std::uint32_t later : after) ++result_.missing_[later];
        result_.after_.insert(result_.after_.end(), after.begin(), after.end());
        if (after.size() == 1 && copies_result(run, after[0])) ways()[run].copied_by = after[0];
      }
      result_.after_begin_[run + 1] = static_cast<std::uint32_t>(result_.after_.size());
    }
    runs_before_ = result_.missing_;
    for (std::uint32_t i = 0; i < size_; ++i) {
      // Data from the network arrives without a run, but a reduction waits for it.
      const bool waits = is_receive(steps_[i].kind) &&
                         (!ways()[i].by_network() || steps_[i].kind == StepKind::receive_reduce);
      if (waits) ++result_.missing_[result_.begin_of_run(i)];
    }
  }

  [[nodiscard]] bool copies_result(std::uint32_t run, std::uint32_t later) const {
    const Step& copy = steps_[later];
    return copy.kind == StepKind::copy && copy.source == steps_[run].begin &&
           copy.size() == steps_[run].size() && result_.end_of_run(later) == later + 1;
  }

  void find_answers() {
    std::map<std::pair<std::int32_t, std::size_t>, std::vector<std::uint32_t>> sends;  // by member and begin
    for (std::uint32_t i = 0; i < size_; ++i) {
      if (!is_send_to_member(i)) continue;
      sends[{ways()[i].member, steps_[i].begin}].push_back(i);
      find_overwriting(i);
    }
    for (std::uint32_t i = 0; i < size_; ++i) {
      const Step& step = steps_[i];
      if (step.kind != StepKind::receive_reduce || ways()[i].by_network()) continue;
      const auto found = sends.find({ways()[i].member, step.begin});
      if (found == sends.end()) continue;
      const auto send = std::ranges::upper_bound(found->second, i);
      if (send == found->second.end() || steps_[*send].end != step.end) continue;
      ways()[i].answer = *send;
      ways()[*send].follows_run = runs_before_[*send] == 1 &&
                                  std::ranges::binary_search(result_.after(result_.begin_of_run(i)), *send);
    }
  }

  /// Finds the receive that overwrites a send's range with the same member's answer before any other access.
  void find_overwriting(std::uint32_t send) {
    const std::span<const std::uint32_t> after = result_.after(send);
    if (steps_[send].begin >= result_.count_ || after.size() != 1) return;
    const Step& step = steps_[after[0]];
    if (step.kind == StepKind::receive && result_.end_of_run(after[0]) == after[0] + 1 &&
        ways()[after[0]].member == ways()[send].member && step.begin == steps_[send].begin &&
        step.end == steps_[send].end && runs_before_[after[0]] == 1) {
      ways()[send].answer = after[0];
    }
  }

  /// Sends to several members can share a copy of the elements, if these are not written between the sends,
  /// and no member writes its answer into it.
  void find_copies() {
    struct Copy {
      std::size_t end;
      bool narrow;
      std::uint32_t index;
    };
    std::map<std::size_t, Copy> copies;  // of the elements as they are, by begin; disjoint
    const auto drop = [&](std::size_t begin, std::size_t end) {
      auto copy = copies.lower_bound(begin);
      if (copy != copies.begin() && std::prev(copy)->second.end > begin) --copy;
      while (copy != copies.end() && copy->first < end) copy = copies.erase(copy);
    };
    for (std::uint32_t i = 0; i < size_; ++i) {
      const Step& step = steps_[i];
      if (step.kind != StepKind::send) drop(step.begin, step.end);
      if (!is_send_to_member(i)) continue;
      StepWay& way = ways()[i];
      const auto copy = copies.find(step.begin);
      if (way.answer == StepWay::none && copy != copies.end() && copy->second.end == step.end &&
          copy->second.narrow == step.narrow) {
        way.copy = copy->second.index;
        ++result_.copies_[way.copy];
        continue;
      }
      way.copy = static_cast<std::uint32_t>(result_.copies_.size());
      result_.copies_.push_back(1);
      if (way.answer != StepWay::none) {
        result_.lends_ = true;
        continue;
      }
      drop(step.begin, step.end);
      copies[step.begin] = {step.end, step.narrow, way.copy};
    }
  }

  /// Sends come first, because peers wait for them: by chunk and piece, so that ranks that can stage only
  /// some pieces at a time stage the same ones. Other runs follow in program order.
  void order() {
    std::uint64_t piece = 0;
    const Step* previous = nullptr;
    result_.urgency_.assign(size_, 0);
    for (std::uint32_t i = 0; i < size_; ++i) {
      const Step& step = steps_[i];
      if (step.joined) continue;
      const bool continues = previous != nullptr && previous->kind == step.kind &&
                             previous->peer == step.peer && previous->phase == step.phase &&
                             previous->chunk == step.chunk && previous->end == step.begin;
      previous = &step;
      piece = continues ? std::min<std::uint64_t>(piece + 1, 0x7fff) : 0;
      const std::uint64_t first =
          step.kind == StepKind::send ? (std::uint64_t{step.chunk} << 15 | piece) : std::uint64_t{1} << 31;
      result_.urgency_[i] = first << 32 | i;
      if (result_.missing_[i] == 0) result_.first_.push_back(i);
    }
    std::ranges::sort(result_.first_, {}, [&](std::uint32_t run) { return result_.urgency_[run]; });
  }

  PreparedProgram& result_;
  const std::vector<Step>& steps_;
  const topology::Dependencies dependencies_;
  std::span<const int> ranks_;
  const Ways& ways_;
  const std::uint32_t size_;
  std::vector<std::uint32_t> runs_before_;  // by run
};

PreparedProgram::PreparedProgram(Program program, std::size_t count, std::size_t element_bytes,
                                 std::span<const int> ranks, const Ways& ways,
                                 std::shared_ptr<const ChosenPlan> plan)
    : program_(checked(std::move(program), count, ranks.size())),
      count_(count),
      ranks_(static_cast<int>(ranks.size())),
      mpi_alone_(ways.mpi_alone),
      plan_(std::move(plan)) {
  const topology::SharesMemory shares = [&](int peer) { return ways.shares_with(ranks[as_index(peer)]); };
  topology::MessageSizes most = ways.message_bytes;
  if (plan_ != nullptr) {
    const topology::MessageSizes own =
        topology::message_bytes_of(plan_->plan.collective, count * element_bytes);
    most = {std::min(most.inside_host, own.inside_host), std::min(most.between_hosts, own.between_hosts)};
  }
  program_ = fuse(cut(std::move(program_), most.of(element_bytes), shares), shares);
  Builder(*this, ranks, ways).build();
}

void PreparedProgram::Messages::add(std::int32_t member, std::uint32_t step) {
  const auto m = as_index(member);
  if (steps.size() <= m) steps.resize(m + 1);
  steps[m].push_back(step);
}

PreparedProgram::Writes PreparedProgram::writes_of(std::size_t begin, std::size_t end) const {
  bool inside = false;
  bool outside = false;
  for (const Step& step : program_.steps) {
    if (step.kind == StepKind::send || step.begin >= count_) continue;
    if (step.begin >= begin && step.end <= end) {
      inside = true;
    } else if (step.end <= begin || step.begin >= end) {
      outside = true;
    } else {
      return Writes::across;
    }
  }
  if (inside && outside) return Writes::both;
  return outside ? Writes::outside : Writes::inside;
}

}  // namespace ddl::collectives
