#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ddl/hash.hpp"
#include "ddl/topology/schedule.hpp"

namespace ddl::topology {

/// Runs a schedule on numbers. An oracle for the verifier, which shares only the meaning of steps that
/// `Program` documents with the library.
///
/// Each element is a random 64-bit number. Two operations run in parallel: a sum modulo 2^64, which detects
/// lost, doubled and misplaced contributions, and an operation that is neither commutative nor associative,
/// which detects ranks that combine in different orders. `finish` maps x to 3x + 1, so that it must occur
/// once and last. A run of reductions is rounded once, at its end; narrow messages carry the result of a
/// `round`. In barriers a step knows the ranks for whose steps it has waited.
class ConcreteRun {
 public:
  /// `seed` determines the data and the order of progress. The schedule must outlive this object.
  ConcreteRun(const Schedule& schedule, std::uint64_t seed) : schedule_(schedule), random_(seed) {}

  /// Returns a description of what is wrong; empty if the result is right.
  std::string run() {
    if (!addresses_are_valid()) return "touches memory that is not there";
    prepare();
    if (!progress()) return problem_.empty() ? "deadlock" : problem_;
    switch (schedule_.collective) {
      case Collective::all_reduce:
        return check_all_reduce();
      case Collective::broadcast:
        return check_broadcast();
      case Collective::reduce_scatter:
        return check_reduce_scatter();
      case Collective::all_gather:
        return check_all_gather();
      case Collective::reduce:
        return check_reduced(static_cast<std::size_t>(schedule_.root), 0, schedule_.count);
      default:
        return check_barrier();
    }
  }

 private:
  struct Element {
    std::uint64_t sum = 0;
    std::uint64_t mixed = 0;
    bool narrow = false;  // whether the value has the wire's type
    friend bool operator==(const Element&, const Element&) = default;
  };
  struct State {
    std::vector<Element> memory;
    std::vector<std::vector<std::size_t>> before;  // for each step
    std::vector<bool> done;
    std::vector<std::vector<bool>> knows;  // for each step
  };

  static bool overlap(std::size_t a, std::size_t a_end, std::size_t b, std::size_t b_end) {
    return a < b_end && b < a_end;
  }
  static bool reads_source(const Step& step) { return has_source(step.kind); }
  static bool conflict(const Step& a, const Step& b) {
    const bool a_writes = a.kind != StepKind::send;
    const bool b_writes = b.kind != StepKind::send;
    if ((a_writes || b_writes) && overlap(a.begin, a.end, b.begin, b.end)) return true;
    if (reads_source(a) && b_writes && overlap(a.source, a.source + a.size(), b.begin, b.end)) return true;
    return reads_source(b) && a_writes && overlap(b.source, b.source + b.size(), a.begin, a.end);
  }

  static bool may_join(const Step& before, const Step& step) {
    const bool goes_on = step.kind == StepKind::receive_reduce || step.kind == StepKind::reduce ||
                         step.kind == StepKind::finish;
    return goes_on && before.kind != StepKind::send && before.kind != StepKind::finish &&
           before.kind != StepKind::round && before.begin == step.begin && before.end == step.end;
  }

  [[nodiscard]] bool addresses_are_valid() const {
    const int ranks = static_cast<int>(schedule_.ranks.size());
    for (int rank = 0; rank < ranks; ++rank) {
      const Program& program = schedule_.ranks[static_cast<std::size_t>(rank)];
      const std::size_t size = schedule_.count + program.scratch;
      for (std::size_t i = 0; i < program.steps.size(); ++i) {
        const Step& step = program.steps[i];
        if (step.joined && (i == 0 || !may_join(program.steps[i - 1], step))) return false;
        if (step.begin >= step.end || step.end > size) return false;
        if (reads_source(step) && (step.source > size || step.size() > size - step.source)) return false;
        if (!is_local(step.kind) && (step.peer < 0 || step.peer >= ranks || step.peer == rank)) return false;
      }
    }
    return true;
  }

  static Element combine(const Element& a, const Element& b) {
    return {a.sum + b.sum, mix(a.mixed * 5 + mix(b.mixed) * 3)};
  }
  static Element finished(const Element& a) { return {a.sum * 3 + 1, mix(a.mixed + 7)}; }
  static Element rounded(const Element& a) { return {a.sum, mix(a.mixed + 11)}; }
  static Element in_wire(const Element& a) { return a.narrow ? a : Element{a.sum, mix(a.mixed + 13), true}; }

  void prepare() {
    for (const Program& program : schedule_.ranks) {
      State& state = states_.emplace_back();
      state.memory.resize(schedule_.count + program.scratch);
      for (Element& element : state.memory) element = {random_(), random_()};
      initial_.emplace_back(state.memory.begin(),
                            state.memory.begin() + static_cast<std::ptrdiff_t>(schedule_.count));
      const auto& steps = program.steps;
      state.before.resize(steps.size());
      for (std::size_t i = 0; i < steps.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) {
          const bool one_stream = steps[i].peer == steps[j].peer &&
                                  ((steps[i].kind == StepKind::send && steps[j].kind == StepKind::send) ||
                                   (is_receive(steps[i].kind) && is_receive(steps[j].kind)));
          if (one_stream || conflict(steps[i], steps[j])) state.before[i].push_back(j);
        }
      }
      state.done.assign(steps.size(), false);
      state.knows.assign(steps.size(), std::vector<bool>(schedule_.ranks.size(), false));
    }
  }

  /// Whether a step may start, apart from the steps of its own run, which begins at step `from`.
  [[nodiscard]] bool may_start(std::size_t rank, std::size_t step, std::size_t from = SIZE_MAX) const {
    const State& state = states_[rank];
    return !state.done[step] && std::ranges::all_of(state.before[step], [&](std::size_t earlier) {
      return earlier >= from || state.done[earlier];
    });
  }

  /// The peer's send that a rank receives next; none if it cannot start yet.
  [[nodiscard]] std::optional<std::size_t> send_to(std::size_t rank, std::size_t peer) const {
    const auto& steps = schedule_.ranks[peer].steps;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].kind != StepKind::send || steps[i].peer != static_cast<int>(rank)) continue;
      if (!states_[peer].done[i]) return may_start(peer, i) ? std::optional(i) : std::nullopt;
    }
    return {};
  }

  /// Whether the run that begins at a step may start, including a send for each of its receives.
  [[nodiscard]] bool run_may_start(std::size_t rank, std::size_t first) const {
    const Program& program = schedule_.ranks[rank];
    std::set<int> peers;
    for (std::size_t i = first; i < program.end_of_run(first); ++i) {
      const Step& step = program.steps[i];
      if (!may_start(rank, i, first)) return false;
      if (!is_receive(step.kind)) continue;
      if (!peers.insert(step.peer).second || !send_to(rank, static_cast<std::size_t>(step.peer)))
        return false;
    }
    return true;
  }

  void learn(std::size_t rank, std::size_t step) {
    State& state = states_[rank];
    state.knows[step][rank] = true;
    for (const std::size_t earlier : state.before[step]) add(state.knows[step], state.knows[earlier]);
  }
  static void add(std::vector<bool>& to, const std::vector<bool>& from) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = to[i] || from[i];
  }

  /// Executes transfers and local steps that may start, in random order, until there are none.
  bool progress() {
    std::size_t left = 0;
    for (const Program& program : schedule_.ranks) left += program.steps.size();
    while (left > 0) {
      std::vector<std::pair<std::size_t, std::size_t>> choices;  // rank, first step of a run
      for (std::size_t rank = 0; rank < states_.size(); ++rank) {
        const auto& steps = schedule_.ranks[rank].steps;
        for (std::size_t i = 0; i < steps.size(); ++i) {
          if (steps[i].joined || steps[i].kind == StepKind::send || states_[rank].done[i]) continue;
          if (run_may_start(rank, i)) choices.emplace_back(rank, i);
        }
      }
      if (choices.empty()) return false;
      // Several at a time, for speed. They cannot conflict, because all may start.
      std::shuffle(choices.begin(), choices.end(), random_);
      choices.resize(1 + random_() % choices.size());
      for (const auto& [rank, first] : choices) {
        const Program& program = schedule_.ranks[rank];
        const std::size_t end = program.end_of_run(first);
        bool reduces = false;
        for (std::size_t i = first; i < end; ++i) {
          if (!execute(rank, i)) return false;
          const StepKind kind = program.steps[i].kind;
          reduces |= kind != StepKind::receive && kind != StepKind::copy && kind != StepKind::round;
          left -= is_receive(kind) ? 2 : 1;
        }
        for (std::size_t i = program.steps[first].begin; reduces && i < program.steps[first].end; ++i) {
          states_[rank].memory[i] = rounded(states_[rank].memory[i]);
        }
      }
    }
    return true;
  }

  /// Executes a local step, or a receive with its send.
  bool execute(std::size_t rank, std::size_t at) {
    const Step& step = schedule_.ranks[rank].steps[at];
    State& state = states_[rank];
    learn(rank, at);
    state.done[at] = true;
    if (step.kind == StepKind::finish) {
      for (std::size_t i = step.begin; i < step.end; ++i) state.memory[i] = finished(state.memory[i]);
      return true;
    }
    if (step.kind == StepKind::round) {
      for (std::size_t i = step.begin; i < step.end; ++i) state.memory[i] = in_wire(state.memory[i]);
      return true;
    }
    std::size_t from = rank;
    std::size_t begin = step.source;
    if (is_receive(step.kind)) {
      from = static_cast<std::size_t>(step.peer);
      const std::size_t send = *send_to(rank, from);
      const Step& sent = schedule_.ranks[from].steps[send];
      learn(from, send);
      add(state.knows[at], states_[from].knows[send]);
      states_[from].done[send] = true;
      if (sent.size() != step.size() || sent.narrow != step.narrow) {
        problem_ = "a transfer of two lengths";
        return false;
      }
      begin = sent.begin;
    }
    const auto& memory = states_[from].memory;
    const std::vector<Element> source(memory.begin() + static_cast<std::ptrdiff_t>(begin),
                                      memory.begin() + static_cast<std::ptrdiff_t>(begin + step.size()));
    for (std::size_t i = 0; i < source.size(); ++i) {
      if (step.narrow && !source[i].narrow) {
        problem_ = "a narrow message of what was not rounded";
        return false;
      }
      put(state.memory[step.begin + i], source[i],
          step.kind == StepKind::reduce || step.kind == StepKind::receive_reduce);
    }
    return true;
  }

  static void put(Element& target, const Element& source, bool reduces) {
    target = reduces ? combine(target, source) : source;
  }

  [[nodiscard]] std::string check_reduced(std::size_t rank, std::size_t begin, std::size_t end) const {
    for (std::size_t i = begin; i < end; ++i) {
      Element sum;
      for (const auto& memory : initial_) sum.sum += memory[i].sum;
      if (states_[rank].memory[i].sum != finished(sum).sum) return "another sum";
    }
    return {};
  }
  std::string check_all_reduce() const {
    for (std::size_t rank = 0; rank < states_.size(); ++rank) {
      if (std::string problem = check_reduced(rank, 0, schedule_.count); !problem.empty()) return problem;
      for (std::size_t i = 0; i < schedule_.count; ++i) {
        if (states_[rank].memory[i] != states_[0].memory[i]) return "ranks disagree";
      }
    }
    return {};
  }
  std::string check_reduce_scatter() const {
    const std::size_t piece = schedule_.count / states_.size();
    for (std::size_t rank = 0; rank < states_.size(); ++rank) {
      std::string problem = check_reduced(rank, rank * piece, (rank + 1) * piece);
      if (!problem.empty()) return problem;
    }
    return {};
  }
  std::string check_all_gather() const {
    const std::size_t piece = schedule_.count / states_.size();
    for (const State& state : states_) {
      for (std::size_t i = 0; i < schedule_.count; ++i) {
        if (state.memory[i] != initial_[i / piece][i]) return "other data";
      }
    }
    return {};
  }
  std::string check_broadcast() const {
    for (const State& state : states_) {
      for (std::size_t i = 0; i < schedule_.count; ++i) {
        if (state.memory[i] != initial_[static_cast<std::size_t>(schedule_.root)][i]) return "other data";
      }
    }
    return {};
  }
  std::string check_barrier() const {
    for (std::size_t rank = 0; rank < states_.size(); ++rank) {
      std::vector<bool> heard(states_.size(), false);
      heard[rank] = true;
      for (const auto& knows : states_[rank].knows) add(heard, knows);
      if (std::ranges::find(heard, false) != heard.end()) return "a rank that was not heard of";
    }
    return {};
  }

  const Schedule& schedule_;
  std::mt19937_64 random_;
  std::vector<State> states_;
  std::vector<std::vector<Element>> initial_;
  std::string problem_;
};

/// Runs a schedule several times; returns the first problem.
inline std::string run_concretely(const Schedule& schedule, std::uint64_t seed, int times = 2) {
  for (int i = 0; i < times; ++i) {
    if (std::string problem = ConcreteRun(schedule, seed + static_cast<std::uint64_t>(i)).run();
        !problem.empty()) {
      return problem;
    }
  }
  return {};
}

}  // namespace ddl::topology
