#include "ddl/topology/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <utility>

#include "topology/json_text.hpp"

namespace ddl::topology {

std::string_view to_string(Collective collective) noexcept {
  constexpr std::array<std::string_view, 6> names = {"all_reduce",     "broadcast",  "barrier",
                                                     "reduce_scatter", "all_gather", "reduce"};
  return name_in(names, collective);
}

std::string_view to_string(StepKind kind) noexcept {
  constexpr std::array<std::string_view, 7> names = {"send", "receive", "receive_reduce", "reduce",
                                                     "copy", "finish",  "round"};
  return name_in(names, kind);
}

Step Step::part(std::size_t offset, std::size_t length) const noexcept {
  Step result = *this;
  result.begin += offset;
  result.end = result.begin + length;
  if (has_source(kind) || kind == StepKind::round) result.source += offset;
  return result;
}

std::string to_string(const Step& step) {
  std::string text = fmt::format("{} [{}, {})", to_string(step.kind), step.begin, step.end);
  if (step.kind == StepKind::send) text += fmt::format(" to {}", step.peer);
  if (is_receive(step.kind)) text += fmt::format(" from {}", step.peer);
  if (has_source(step.kind)) {
    text += fmt::format(" from own [{}, {})", step.source, step.source + step.size());
  }
  if (step.kind == StepKind::round) {
    text += fmt::format(", residual [{}, {})", step.source, step.source + step.size());
  }
  if (step.narrow) text += ", narrow";
  if (step.joined) text += ", joined";
  return text;
}

namespace {

constexpr std::uint32_t nobody = UINT32_MAX;

/// The last steps that touched the elements from a key of the map up to the next key.
struct LastUse {
  std::uint32_t writer = nobody;
  std::vector<std::uint32_t> readers;  // since that write
};

class Memory {
 public:
  explicit Memory(std::size_t size) : size_(size) { uses_.emplace(0, LastUse{}); }

  void read(std::uint32_t step, std::size_t begin, std::size_t end, std::vector<std::uint32_t>& before) {
    if (begin >= end) return;
    const auto last = split(end);
    for (auto use = split(begin); use != last; ++use) {
      if (use->second.writer != nobody) before.push_back(use->second.writer);
      use->second.readers.push_back(step);
    }
  }

  void write(std::uint32_t step, std::size_t begin, std::size_t end, std::vector<std::uint32_t>& before) {
    if (begin >= end) return;
    const auto first = split(begin);
    const auto last = split(end);
    for (auto use = first; use != last; ++use) {
      // Readers already depend on the writer.
      const LastUse& previous = use->second;
      before.insert(before.end(), previous.readers.begin(), previous.readers.end());
      if (previous.readers.empty() && previous.writer != nobody) before.push_back(previous.writer);
    }
    first->second = {step, {}};
    uses_.erase(std::next(first), last);
  }

 private:
  using Uses = std::map<std::size_t, LastUse>;

  Uses::iterator split(std::size_t at) {
    if (at >= size_) return uses_.end();
    const auto next = uses_.lower_bound(at);
    if (next != uses_.end() && next->first == at) return next;
    return uses_.emplace_hint(next, at, std::prev(next)->second);
  }

  std::size_t size_;
  Uses uses_;
};

}  // namespace

Dependencies::Dependencies(const Program& program) {
  const std::vector<Step>& steps = program.steps;
  std::size_t size = 0;
  for (const Step& step : steps) {
    size = std::max({size, step.end, has_source(step.kind) ? step.source + step.size() : 0});
  }
  Memory memory(size);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges;  // (earlier step, later step)
  edges.reserve(steps.size() * 2);
  before_.reserve(steps.size());
  std::vector<std::uint32_t> before;
  for (std::uint32_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    before.clear();
    if (has_source(step.kind)) memory.read(i, step.source, step.source + step.size(), before);
    if (step.kind == StepKind::send) {
      memory.read(i, step.begin, step.end, before);
    } else {
      memory.write(i, step.begin, step.end, before);
    }
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
    std::erase(before, i);  // the step itself, if its source overlaps its target
    before_.push_back(static_cast<std::uint32_t>(before.size()));
    for (const std::uint32_t earlier : before) edges.emplace_back(earlier, i);
  }
  begin_.assign(steps.size() + 1, 0);
  for (const auto& [earlier, later] : edges) ++begin_[earlier + 1];
  for (std::size_t i = 0; i < steps.size(); ++i) begin_[i + 1] += begin_[i];
  after_.resize(edges.size());
  std::vector<std::uint32_t> next(begin_.begin(), begin_.end() - 1);
  for (const auto& [earlier, later] : edges) after_[next[earlier]++] = later;
}

}  // namespace ddl::topology
