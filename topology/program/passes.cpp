// Passes over one rank's program: each takes a program and returns a new one.

#include "topology/program/passes.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "topology/refuse.hpp"

namespace ddl::topology {
namespace {

bool same_stream(const Step& a, const Step& b) {
  return !is_local(a.kind) && !is_local(b.kind) && a.peer == b.peer &&
         is_receive(a.kind) == is_receive(b.kind);
}

class Cutter {
 public:
  Cutter(const std::vector<Step>& steps, const MessageSizes& most, const SharesMemory& shares)
      : steps_(steps), most_(most), shares_(shares) {
    const auto crosses = [&](const Step& step) { return !is_local(step.kind) && !shares_(step.peer); };
    local_ = std::ranges::any_of(steps_, crosses) ? most_.between_hosts : most_.inside_host;
  }

  [[nodiscard]] bool has_work() const {
    return std::ranges::any_of(steps_, [&](const Step& step) { return step.size() > most_of(step); });
  }

  [[nodiscard]] std::vector<Step> pieces() const {
    std::vector<Step> result;
    for (std::size_t first = 0; first < steps_.size();) {
      const auto [end, most] = alike_from(first);
      const std::size_t size = steps_[first].size();
      const std::size_t pieces = size <= most ? 1 : (size - 1) / most + 1;
      std::size_t offset = 0;
      for (std::size_t piece = 0; piece < pieces; ++piece) {
        const std::size_t length = size / pieces + (piece < size % pieces ? 1 : 0);
        for (std::size_t at = first; at < end; ++at) result.push_back(steps_[at].part(offset, length));
        offset += length;
      }
      first = end;
    }
    return result;
  }

 private:
  struct Alike {
    std::size_t end;
    std::size_t most;
  };

  [[nodiscard]] std::size_t most_of(const Step& step) const {
    if (is_local(step.kind)) return local_;
    return shares_(step.peer) ? most_.inside_host : most_.between_hosts;
  }

  /// The steps from `first` on that can be listed piece by piece. They have one range and the same cuts, so
  /// that a piece conflicts only with the same piece of the others; and no two are of one stream, whose
  /// messages must keep their order. Local steps are cut like the steps before them.
  [[nodiscard]] Alike alike_from(std::size_t first) const {
    const Step& head = steps_[first];
    const std::size_t most = most_of(head);
    std::size_t end = first + 1;
    if (head.size() <= std::min(most_.inside_host, most_.between_hosts)) return {end, most};
    for (; end < steps_.size(); ++end) {
      const Step& next = steps_[end];
      if (next.begin != head.begin || next.end != head.end) break;
      if (!is_local(next.kind) && most_of(next) != most) break;
      const auto of_its_stream = [&](const Step& step) { return same_stream(step, next); };
      if (std::any_of(steps_.begin() + static_cast<std::ptrdiff_t>(first),
                      steps_.begin() + static_cast<std::ptrdiff_t>(end), of_its_stream)) {
        break;
      }
    }
    return {end, most};
  }

  const std::vector<Step>& steps_;
  const MessageSizes& most_;
  const SharesMemory& shares_;
  std::size_t local_;
};

class Fuser {
 public:
  Fuser(const Program& program, const SharesMemory& shares)
      : steps_(program.steps), dependencies_(program), before_(steps_.size()) {
    for (std::uint32_t i = 0; i < steps_.size(); ++i) {
      if (!is_local(steps_[i].kind) && !shares(steps_[i].peer)) is_remote_[steps_[i].phase] = true;
      message_.push_back(is_receive(steps_[i].kind) ? messages_[steps_[i].peer]++ : 0);
      for (const std::uint32_t later : dependencies_.after(i)) {
        Before& before = before_[later];
        before.second_last = std::exchange(before.last, i);
      }
    }
    messages_.clear();
  }

  std::vector<Step> runs() {
    std::vector<Step> result;
    result.reserve(steps_.size());
    std::vector<bool> is_listed(steps_.size(), false);
    for (std::uint32_t i = 0; i < steps_.size(); ++i) {
      if (is_listed[i]) continue;
      find_chain(i);
      for (const std::uint32_t step : chain_) {
        is_listed[step] = true;
        result.push_back(steps_[step]);
        result.back().joined = step != i;
        if (is_receive(steps_[step].kind)) ++messages_[steps_[step].peer];
      }
    }
    return result;
  }

 private:
  static constexpr std::uint32_t none = UINT32_MAX;
  /// The last two steps that a step waits for.
  struct Before {
    std::uint32_t last = none;
    std::uint32_t second_last = none;
  };

  /// Sets `chain_` to the run that step `first` begins, which may be that step alone.
  void find_chain(std::uint32_t first) {
    chain_.assign(1, first);
    const StepKind head = steps_[first].kind;
    const bool is_alone = head == StepKind::send || head == StepKind::finish || head == StepKind::round;
    if (is_alone || is_remote_[steps_[first].phase]) return;
    for (std::uint32_t next = follower(first); next != none; next = follower(first)) {
      chain_.push_back(next);
      if (steps_[next].kind == StepKind::finish) break;
    }
    if (!reduces() || !keeps_streams()) chain_.resize(1);
  }

  /// The step that continues the chain: it has the same range and, from the chain's first step on, depends on
  /// the last one alone. It must not depend on a plain receive either: members that receive in another order
  /// would round at other places. Steps outside the chain that depend on a part of it do not delay the rest.
  [[nodiscard]] std::uint32_t follower(std::uint32_t first) const {
    const Step& head = steps_[first];
    for (const std::uint32_t next : dependencies_.after(chain_.back())) {
      const Step& step = steps_[next];
      const Before& before = before_[next];
      if (step.begin != head.begin || step.end != head.end || before.last != chain_.back() ||
          (before.second_last != none &&
           (before.second_last >= first || steps_[before.second_last].kind == StepKind::receive))) {
        continue;
      }
      if (step.kind == StepKind::finish) return next;
      if (head.kind == StepKind::reduce) continue;  // its operand was received separately
      const bool reduces = step.kind == StepKind::receive_reduce || step.kind == StepKind::reduce;
      if (reduces && step.phase == head.phase && step.chunk == head.chunk) return next;
    }
    return none;
  }

  [[nodiscard]] bool reduces() const {
    return std::ranges::any_of(chain_, [&](std::uint32_t step) {
      return steps_[step].kind == StepKind::receive_reduce || steps_[step].kind == StepKind::reduce;
    });
  }

  /// Whether each message that joins the chain is the next one of its stream, and no stream occurs twice.
  [[nodiscard]] bool keeps_streams() const {
    return std::all_of(chain_.begin() + 1, chain_.end(), [&](std::uint32_t step) {
      if (!is_receive(steps_[step].kind)) return true;
      const auto taken = messages_.find(steps_[step].peer);
      return message_[step] == (taken == messages_.end() ? 0 : taken->second);
    });
  }

  const std::vector<Step>& steps_;
  const Dependencies dependencies_;
  std::vector<Before> before_;
  std::vector<std::uint32_t> message_;              // number of each receive in its stream
  std::map<std::int32_t, std::uint32_t> messages_;  // received from each peer so far
  std::vector<std::uint32_t> chain_;
  std::array<bool, 256> is_remote_{};  // phases with a peer that does not share memory
};

}  // namespace

Program cut(Program program, const MessageSizes& most, const SharesMemory& shares) {
  if (most.inside_host == 0 || most.between_hosts == 0) {
    refuse("cut: found pieces of 0 elements, expected at least 1");
  }
  for (Step& step : program.steps) step.narrow = step.narrow && !shares(step.peer);
  const Cutter cutter(program.steps, most, shares);
  if (cutter.has_work()) program.steps = cutter.pieces();
  return program;
}

Program fuse(Program program, const SharesMemory& shares) {
  const auto reads_a_peer = [&](const Step& step) { return is_receive(step.kind) && shares(step.peer); };
  const auto reduces = [](const Step& step) {
    return step.kind == StepKind::receive_reduce || step.kind == StepKind::reduce;
  };
  if (std::ranges::any_of(program.steps, reads_a_peer) && std::ranges::any_of(program.steps, reduces)) {
    program.steps = Fuser(program, shares).runs();
  }
  return program;
}

}  // namespace ddl::topology
