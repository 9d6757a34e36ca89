#include <fmt/format.h>

#include "topology/verifier/verifier_expressions.hpp"

namespace ddl::topology::verification {
namespace {

class Progress {
 public:
  Progress(const StepNumbers& steps, const Streams& streams) : steps_(steps), streams_(streams) {
    const auto& programs = steps.schedule().ranks;
    dependencies_.reserve(programs.size());
    for (const Program& program : programs) dependencies_.emplace_back(program);
    node_.reserve(steps.size());
    for (StepId id = 0; id < steps.size(); ++id) node_.push_back(find_node(id));
    waits_for_.assign(steps.size(), 0);
    for (StepId id = 0; id < steps.size(); ++id) {
      for_each_after(id, [&](StepId later) { ++waits_for_[node_[later]]; });
    }
  }

  Order run() {
    for (StepId id = 0; id < steps_.size(); ++id) {
      if (node_[id] == id && waits_for_[id] == 0) ready_.push_back(id);
    }
    Order order;
    std::size_t happened = 0;
    while (!ready_.empty()) {
      const StepId node = ready_.back();
      ready_.pop_back();
      order.steps.push_back(node);
      waits_for_[node] = done;
      for_each_step(node, [&](StepId id) {
        ++happened;
        for_each_after(id, [&](StepId later) {
          if (--waits_for_[node_[later]] == 0) ready_.push_back(node_[later]);
        });
      });
    }
    if (happened != steps_.size()) order.problem = describe_cycle(steps_.size() - happened);
    return order;
  }

 private:
  static constexpr std::uint32_t done = UINT32_MAX;

  [[nodiscard]] bool is_run(StepId id) const { return steps_[id].joined || steps_.end_of_run(id) != id + 1; }
  /// The step that stands for all steps that happen at once: a transfer's send, or the first step of a run.
  [[nodiscard]] StepId find_node(StepId id) const {
    const StepId mine = steps_[id].kind == StepKind::send ? streams_.partner(id) : id;
    if (is_run(mine)) return steps_.begin_of_run(mine);
    return is_receive(steps_[mine].kind) ? streams_.partner(mine) : mine;
  }

  template <typename Visit>
  void for_each_step(StepId node, Visit visit) const {
    const bool sends = steps_[node].kind == StepKind::send;
    const StepId end = sends ? node + 1 : steps_.end_of_run(node);
    for (StepId id = node; id < end; ++id) {
      visit(id);
      if (streams_.partner(id) != no_step) visit(streams_.partner(id));
    }
  }

  /// Visits the steps that wait for a step, except those of its own node, which happen with it.
  template <typename Visit>
  void for_each_after(StepId id, Visit visit) const {
    const StepId first = id - steps_.index(id);
    for (const std::uint32_t later : dependencies_[as_index(steps_.rank(id))].after(steps_.index(id))) {
      if (node_[first + later] != node_[id]) visit(first + later);
    }
    if (streams_.next(id) != no_step) visit(streams_.next(id));
  }

  /// Every step that has not happened waits for another such step, itself or through its partner, so going
  /// back from any of them leads into a cycle.
  [[nodiscard]] std::string describe_cycle(std::size_t waiting) const {
    struct Reason {
      StepId mine = no_step;     // a step of the node
      StepId earlier = no_step;  // the step of the same rank that `mine` waits for
    };
    std::vector<Reason> reasons(steps_.size());
    StepId start = no_step;
    for (StepId id = 0; id < steps_.size(); ++id) {
      if (waits_for_[node_[id]] == done) continue;
      if (start == no_step) start = node_[id];
      for_each_after(id, [&](StepId later) { reasons[node_[later]] = {later, id}; });
    }
    std::vector<bool> seen(steps_.size(), false);
    while (!seen[start]) {
      seen[start] = true;
      start = node_[reasons[start].earlier];
    }
    std::string text;
    std::size_t length = 0;
    constexpr std::size_t most_described = 6;
    StepId at = start;
    do {
      const auto [mine, earlier] = reasons[at];
      if (++length <= most_described) {
        const bool by_stream = streams_.next(earlier) == mine;
        text += fmt::format("{}{} waits for step {} ({}), {}", length == 1 ? "" : "; ", steps_.name(mine),
                            steps_.index(earlier), to_string(steps_[earlier]),
                            by_stream ? "before it in the stream" : "which uses the same memory");
        if (streams_.partner(earlier) != no_step) {
          text += fmt::format(" and needs rank {}, step {}", steps_.rank(streams_.partner(earlier)),
                              steps_.index(streams_.partner(earlier)));
        }
      }
      at = node_[earlier];
    } while (at != start);
    if (length > most_described) text += fmt::format("; and so on over {} waits", length);
    return fmt::format(
        "deadlock: {} of {} steps can never start without buffers; found a cycle, expected none: {}", waiting,
        steps_.size(), text);
  }

  const StepNumbers& steps_;
  const Streams& streams_;
  std::vector<Dependencies> dependencies_;
  std::vector<StepId> node_;              // by step
  std::vector<std::uint32_t> waits_for_;  // by node
  std::vector<StepId> ready_;
};

}  // namespace

Order order_steps(const StepNumbers& steps, const Streams& streams) { return Progress(steps, streams).run(); }

}  // namespace ddl::topology::verification
