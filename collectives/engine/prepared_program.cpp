#include "collectives/engine/prepared_program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "ddl/error.hpp"
#include "ddl/topology/dependencies.hpp"
#include "ddl/topology/lowering.hpp"

namespace ddl::collectives {

using topology::Dependencies;
using topology::Program;
using topology::Step;
using topology::StepKind;

namespace {

std::uint64_t next_id() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

void check(const Program& program, std::size_t count, std::size_t ranks) {
  const std::size_t size = count + program.scratch;
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    const Step& step = program.steps[i];
    // Buffer and scratch memory are two pieces.
    const auto is_in_one_piece = [&](std::size_t begin, std::size_t end) {
      return begin < end && end <= size && (end <= count || begin >= count);
    };
    const bool has_source = step.kind == StepKind::reduce || step.kind == StepKind::copy;
    if (is_in_one_piece(step.begin, step.end) &&
        (!has_source || is_in_one_piece(step.source, step.source + step.size())) &&
        (is_local(step.kind) || (step.peer >= 0 && static_cast<std::size_t>(step.peer) < ranks))) {
      continue;
    }
    throw Error(
        ErrorCode::internal,
        fmt::format("step {} cannot be run: found {}, expected one of {} ranks as its peer and ranges "
                    "inside a buffer of {} or scratch memory of {} elements",
                    i, to_string(step), ranks, count, program.scratch));
  }
}

enum class Written { no, yes, partly };

/// Which elements have been written to.
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
  std::map<std::size_t, std::size_t> ranges_;  // disjoint, not touching: begin and end
};

}  // namespace

/// Makes the tasks of a program's steps.
class PreparedProgram::Builder {
 public:
  Builder(PreparedProgram& result, const Program& program, std::span<const int> ranks, const Ways& ways)
      : result_(result), steps_(program.steps), dependencies_(program), ranks_(ranks), ways_(ways) {}

  void build() {
    number_messages();
    find_reads();
    make_tasks();
    connect();
    find_answers();
    find_partners();
    order();
    index_messages();
  }

 private:
  [[nodiscard]] int member_of(const Step& step) const {
    if (is_local(step.kind) || ways_.mpi_alone) return Ways::no_member;
    return ways_.member[static_cast<std::size_t>(ranks_[static_cast<std::size_t>(step.peer)])];
  }
  [[nodiscard]] bool is_chained(const Step& step) const {
    return step.kind == StepKind::receive_reduce && member_of(step) != Ways::no_member;
  }

  void number_messages() {
    std::map<std::pair<int, bool>, std::uint32_t> next;
    for (const Step& step : steps_) {
      message_of_.push_back(is_local(step.kind) ? 0 : next[{step.peer, step.kind == StepKind::send}]++);
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
    for (const Step& step : steps_) {
      const bool has_source = step.kind == StepKind::reduce || step.kind == StepKind::copy;
      const bool reads_range = step.kind != StepKind::receive && step.kind != StepKind::copy;
      source_is_input_.push_back(has_source && reads_input(step.source, step.source + step.size()));
      range_is_input_.push_back(reads_range && reads_input(step.begin, step.end));
      if (step.kind != StepKind::send) written.add(step.begin, step.end);
    }
    result_.unwritten_ = written.rest_of(result_.count_);
  }

  void make_tasks() {
    task_of_.assign(steps_.size(), Task::none);
    for (std::uint32_t i = 0; i < steps_.size(); ++i) {
      if (task_of_[i] != Task::none) continue;  // the rest of a chain
      const Step& step = steps_[i];
      Task task;
      task.phase = step.phase;
      task.chunk = step.chunk;
      task.begin = step.begin;
      task.end = step.end;
      task.source = step.source;
      task.reads_input = range_is_input_[i];
      task.source_is_input = source_is_input_[i];
      task.message = message_of_[i];
      task.member = member_of(step);
      if (!is_local(step.kind)) task.peer = ranks_[static_cast<std::size_t>(step.peer)];
      task.kind = kind_of(step, task.member);
      if (!is_local(step.kind) && task.member == Ways::no_member) task.slot = result_.net_tasks_++;
      const auto index = static_cast<std::uint32_t>(result_.tasks_.size());
      task_of_[i] = index;
      task.inputs_begin = task.inputs_end = static_cast<std::uint32_t>(result_.inputs_.size());
      if (task.kind == Task::Kind::pull) add_input(task, i, index);
      if (task.kind == Task::Kind::pass) {
        add_input(task, i, index);
        follow_chain(task, i, index);
      }
      if (task.kind == Task::Kind::finish) task.divides = true;
      result_.tasks_.push_back(task);
    }
  }

  static Task::Kind kind_of(const Step& step, int member) {
    const bool shared = member != Ways::no_member;
    switch (step.kind) {
      case StepKind::send:
        return shared ? Task::Kind::post : Task::Kind::net_send;
      case StepKind::receive:
        return shared ? Task::Kind::pull : Task::Kind::net_receive;
      case StepKind::receive_reduce:
        return shared ? Task::Kind::pass : Task::Kind::net_reduce;
      case StepKind::reduce:
        return Task::Kind::reduce;
      case StepKind::copy:
        return Task::Kind::copy;
      case StepKind::finish:
        break;
    }
    return Task::Kind::finish;
  }

  void add_input(Task& task, std::uint32_t step, std::uint32_t index) {
    result_.inputs_.push_back({ranks_[static_cast<std::size_t>(steps_[step].peer)], member_of(steps_[step]),
                               message_of_[step], index, Task::none});
    task.inputs_end = static_cast<std::uint32_t>(result_.inputs_.size());
  }

  /// A step that waits for the last one of the chain alone, is all that waits for that one, and is of the
  /// same range: what it needs is there as soon as the chain has it.
  void follow_chain(Task& task, std::uint32_t last, std::uint32_t index) {
    for (;;) {
      const std::span<const std::uint32_t> after = dependencies_.after(last);
      if (after.size() != 1) return;
      const std::uint32_t next = after[0];
      const Step& step = steps_[next];
      if (dependencies_.number_before(next) != 1 || step.begin != task.begin || step.end != task.end) return;
      if (step.kind == StepKind::finish) {
        task_of_[next] = index;
        task.divides = true;
        return;
      }
      if (!is_chained(step) || step.phase != task.phase || step.chunk != task.chunk) return;
      task_of_[next] = index;
      add_input(task, next, index);
      last = next;
    }
  }

  void connect() {
    const std::size_t tasks = result_.tasks_.size();
    std::vector<std::vector<std::uint32_t>> after(tasks);
    for (std::uint32_t step = 0; step < steps_.size(); ++step) {
      const std::uint32_t from = task_of_[step];
      for (const std::uint32_t later : dependencies_.after(step)) {
        const std::uint32_t to = task_of_[later];
        if (to != from) after[from].push_back(to);
      }
    }
    result_.missing_.assign(tasks, 0);
    result_.after_begin_.assign(tasks + 1, 0);
    for (std::uint32_t task = 0; task < tasks; ++task) {
      std::vector<std::uint32_t>& list = after[task];
      std::ranges::sort(list);
      list.erase(std::unique(list.begin(), list.end()), list.end());
      for (const std::uint32_t later : list) ++result_.missing_[later];
      result_.after_.insert(result_.after_.end(), list.begin(), list.end());
      result_.after_begin_[task + 1] = static_cast<std::uint32_t>(result_.after_.size());
    }
    dependencies_of_ = result_.missing_;
    for (const Input& input : result_.inputs_) ++result_.missing_[input.task];
    for (std::uint32_t task = 0; task < tasks; ++task) {
      // What arrives through the network counts as well: it comes by itself.
      if (result_.tasks_[task].kind == Task::Kind::net_reduce) {
        ++result_.missing_[task];
        result_.net_reduces_.push_back(task);
      }
    }
  }

  /// For each message that a pass takes, the next post of the same range back to its sender.
  void find_answers() {
    std::map<std::pair<std::int32_t, std::size_t>, std::vector<std::uint32_t>> posts;  // by member and begin
    for (std::uint32_t i = 0; i < result_.tasks_.size(); ++i) {
      const Task& task = result_.tasks_[i];
      if (task.kind == Task::Kind::post) posts[{task.member, task.begin}].push_back(i);
    }
    for (std::uint32_t i = 0; i < result_.tasks_.size(); ++i) {
      Task& pass = result_.tasks_[i];
      if (pass.kind != Task::Kind::pass) continue;
      pass.answers_begin = static_cast<std::uint32_t>(result_.answers_.size());
      for (std::uint32_t k = pass.inputs_begin; k < pass.inputs_end; ++k) {
        Input& input = result_.inputs_[k];
        const auto found = posts.find({input.member, pass.begin});
        if (found == posts.end()) continue;
        const auto post = std::ranges::upper_bound(found->second, i);
        if (post == found->second.end() || result_.tasks_[*post].end != pass.end) continue;
        input.answer = *post;
        if (dependencies_of_[*post] == 1 && std::ranges::binary_search(result_.after(i), *post)) {
          result_.answers_.push_back(*post);
        }
      }
      pass.answers_end = static_cast<std::uint32_t>(result_.answers_.size());
    }
  }

  /// A post after which nothing happens to the range until the same member's answer overwrites it.
  void find_partners() {
    for (std::uint32_t i = 0; i < result_.tasks_.size(); ++i) {
      Task& post = result_.tasks_[i];
      if (post.kind != Task::Kind::post || post.begin >= result_.count_) continue;
      const std::span<const std::uint32_t> after = result_.after(i);
      if (after.size() != 1) continue;
      const Task& pull = result_.tasks_[after[0]];
      if (pull.kind == Task::Kind::pull && pull.member == post.member && pull.begin == post.begin &&
          pull.end == post.end && dependencies_of_[after[0]] == 1) {
        post.partner = after[0];
      }
    }
  }

  /// What others wait for goes out first: piece by piece, so that ranks that can only hold some pieces at a
  /// time hold the same ones. The rest goes by the program's order.
  void order() {
    const std::size_t tasks = result_.tasks_.size();
    std::uint64_t piece = 0;
    for (std::uint32_t i = 0; i < tasks; ++i) {
      const Task& task = result_.tasks_[i];
      const Task* previous = i == 0 ? nullptr : &result_.tasks_[i - 1];
      const bool continues = previous != nullptr && previous->kind == task.kind &&
                             previous->peer == task.peer && previous->phase == task.phase &&
                             previous->chunk == task.chunk && previous->end == task.begin;
      piece = continues ? std::min<std::uint64_t>(piece + 1, 0x7fff) : 0;
      const bool sends = task.kind == Task::Kind::post || task.kind == Task::Kind::net_send;
      const std::uint64_t first = sends ? (std::uint64_t{task.chunk} << 15 | piece) : std::uint64_t{1} << 31;
      result_.urgency_.push_back(first << 32 | i);
      if (result_.missing_[i] == 0) result_.first_.push_back(i);
    }
    std::ranges::sort(result_.first_, {}, [&](std::uint32_t task) { return result_.urgency_[task]; });
  }

  void index_messages() {
    std::size_t members = 0;
    for (const int member : ways_.member) members = std::max(members, static_cast<std::size_t>(member + 1));
    std::vector<std::vector<std::uint32_t>> inputs(members);
    std::vector<std::vector<std::uint32_t>> posts(members);
    const auto put = [](std::vector<std::uint32_t>& list, std::uint32_t message, std::uint32_t index) {
      if (list.size() <= message) list.resize(message + 1, Task::none);
      list[message] = index;
    };
    for (std::uint32_t i = 0; i < result_.inputs_.size(); ++i) {
      put(inputs[static_cast<std::size_t>(result_.inputs_[i].member)], result_.inputs_[i].message, i);
    }
    for (std::uint32_t i = 0; i < result_.tasks_.size(); ++i) {
      const Task& task = result_.tasks_[i];
      if (task.kind == Task::Kind::post) put(posts[static_cast<std::size_t>(task.member)], task.message, i);
    }
    const auto join = [](const std::vector<std::vector<std::uint32_t>>& lists, std::vector<Stream>& streams,
                         std::vector<std::uint32_t>& all) {
      for (const std::vector<std::uint32_t>& list : lists) {
        const auto begin = static_cast<std::uint32_t>(all.size());
        all.insert(all.end(), list.begin(), list.end());
        streams.push_back({begin, static_cast<std::uint32_t>(all.size())});
      }
    };
    join(inputs, result_.inputs_from_, result_.inputs_by_message_);
    join(posts, result_.posts_to_, result_.posts_by_message_);
    for (std::size_t member = 0; member < members; ++member) {
      if (!inputs[member].empty() || !posts[member].empty()) {
        result_.members_.push_back(static_cast<std::int32_t>(member));
      }
    }
  }

  PreparedProgram& result_;
  const std::vector<Step>& steps_;
  Dependencies dependencies_;
  std::span<const int> ranks_;
  const Ways& ways_;
  std::vector<std::uint32_t> message_of_;  // by step, as all of these
  std::vector<bool> range_is_input_;
  std::vector<bool> source_is_input_;
  std::vector<std::uint32_t> task_of_;
  std::vector<std::uint32_t> dependencies_of_;  // by task: how many
};

PreparedProgram::PreparedProgram(Program program, std::size_t count, std::size_t element_bytes,
                                 std::span<const int> ranks, const Ways& ways,
                                 std::shared_ptr<const PlanNames> names, std::vector<int> combined_in_order)
    : id_(next_id()),
      count_(count),
      scratch_(program.scratch),
      ranks_(static_cast<int>(ranks.size())),
      mpi_alone_(ways.mpi_alone),
      names_(std::move(names)),
      combined_in_order_(std::move(combined_in_order)) {
  check(program, count, ranks.size());
  topology::split_steps(program, ways.message_bytes.of(element_bytes), [&](int peer) {
    return !ways.mpi_alone &&
           ways.member[static_cast<std::size_t>(ranks[static_cast<std::size_t>(peer)])] != Ways::no_member;
  });
  Builder(*this, program, ranks, ways).build();
}

std::uint32_t PreparedProgram::input_of(std::int32_t member, std::uint32_t message) const noexcept {
  if (static_cast<std::size_t>(member) >= inputs_from_.size()) return Task::none;
  const Stream& stream = inputs_from_[static_cast<std::size_t>(member)];
  return message < stream.end - stream.begin ? inputs_by_message_[stream.begin + message] : Task::none;
}

std::uint32_t PreparedProgram::post_of(std::int32_t member, std::uint32_t message) const noexcept {
  if (static_cast<std::size_t>(member) >= posts_to_.size()) return Task::none;
  const Stream& stream = posts_to_[static_cast<std::size_t>(member)];
  return message < stream.end - stream.begin ? posts_by_message_[stream.begin + message] : Task::none;
}

PreparedProgram::Writes PreparedProgram::writes_of(std::size_t begin, std::size_t end) const {
  bool inside = false;
  bool outside = false;
  for (const Task& task : tasks_) {
    if (task.kind == Task::Kind::post || task.kind == Task::Kind::net_send || task.begin >= count_) continue;
    if (task.begin >= begin && task.end <= end) {
      inside = true;
    } else if (task.end <= begin || task.begin >= end) {
      outside = true;
    } else {
      return Writes::across;
    }
  }
  if (inside && outside) return Writes::both;
  return outside ? Writes::outside : Writes::inside;
}

}  // namespace ddl::collectives
