#include "topology/verifier/verifier_order.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ddl/topology/dependencies.hpp"

namespace ddl::topology::verification {
namespace {

class Progress {
 public:
  Progress(const StepNumbers& steps, const Streams& streams) : steps_(steps), streams_(streams) {
    const auto& programs = steps.schedule().ranks;
    dependencies_.reserve(programs.size());
    waits_for_.reserve(steps.size());
    for (const Program& program : programs) {
      const Dependencies& dependencies = dependencies_.emplace_back(program);
      for (std::size_t i = 0; i < program.steps.size(); ++i) {
        const std::uint32_t before_in_stream = streams.has_before[waits_for_.size()] ? 1 : 0;
        waits_for_.push_back(dependencies.number_before(i) + before_in_stream);
      }
    }
  }

  Order run() {
    for (StepId id = 0; id < steps_.size(); ++id) {
      if (steps_[id].kind == StepKind::send || is_local(steps_[id].kind)) add_if_ready(id);
    }
    Order order;
    std::size_t happened = 0;
    while (!ready_.empty()) {
      const StepId id = ready_.back();
      ready_.pop_back();
      order.steps.push_back(id);
      complete(id);
      ++happened;
      if (streams_.partner[id] != no_step) {
        complete(streams_.partner[id]);
        ++happened;
      }
    }
    if (happened != steps_.size()) order.problem = describe_cycle(steps_.size() - happened);
    return order;
  }

 private:
  static constexpr std::uint32_t done = UINT32_MAX;

  /// What happens first: a transfer goes by its send.
  [[nodiscard]] StepId node(StepId id) const {
    return is_receive(steps_[id].kind) ? streams_.partner[id] : id;
  }

  void add_if_ready(StepId id) {
    const StepId partner = streams_.partner[id];
    if (waits_for_[id] == 0 && (partner == no_step || waits_for_[partner] == 0)) ready_.push_back(node(id));
  }

  template <typename Visit>
  void for_each_after(StepId id, Visit visit) const {
    const StepId first = id - steps_.index(id);
    for (const std::uint32_t later :
         dependencies_[static_cast<std::size_t>(steps_.rank(id))].after(steps_.index(id))) {
      visit(first + later);
    }
    if (streams_.next[id] != no_step) visit(streams_.next[id]);
  }

  void complete(StepId id) {
    waits_for_[id] = done;
    for_each_after(id, [&](StepId later) {
      if (--waits_for_[later] == 0) add_if_ready(later);
    });
  }

  /// Every step that has not happened waits for one, over its partner if not itself: going back from any of
  /// them runs into a cycle.
  [[nodiscard]] std::string describe_cycle(std::size_t waiting) const {
    struct Reason {
      StepId mine = no_step;     // the step of the node, or its partner
      StepId earlier = no_step;  // of the same rank
    };
    std::vector<Reason> reasons(steps_.size());
    StepId start = no_step;
    for (StepId id = 0; id < steps_.size(); ++id) {
      if (waits_for_[id] == done) continue;
      if (start == no_step) start = node(id);
      for_each_after(id, [&](StepId later) { reasons[node(later)] = {later, id}; });
    }
    std::vector<bool> seen(steps_.size(), false);
    while (!seen[start]) {
      seen[start] = true;
      start = node(reasons[start].earlier);
    }
    std::string text;
    std::size_t length = 0;
    constexpr std::size_t most_described = 6;
    StepId at = start;
    do {
      const auto [mine, earlier] = reasons[at];
      if (++length <= most_described) {
        const bool by_stream = streams_.next[earlier] == mine;
        text += fmt::format("{}{} waits for step {} ({}), {}", length == 1 ? "" : "; ", steps_.name(mine),
                            steps_.index(earlier), to_string(steps_[earlier]),
                            by_stream ? "before it in the stream" : "which uses the same memory");
        if (streams_.partner[earlier] != no_step) {
          text += fmt::format(" and needs rank {}, step {}", steps_.rank(streams_.partner[earlier]),
                              steps_.index(streams_.partner[earlier]));
        }
      }
      at = node(earlier);
    } while (at != start);
    if (length > most_described) text += fmt::format("; and so on over {} waits", length);
    return fmt::format(
        "deadlock: {} of {} steps can never start without buffers; found a cycle, expected none: {}", waiting,
        steps_.size(), text);
  }

  const StepNumbers& steps_;
  const Streams& streams_;
  std::vector<Dependencies> dependencies_;
  std::vector<std::uint32_t> waits_for_;
  std::vector<StepId> ready_;
};

}  // namespace

Order order_steps(const StepNumbers& steps, const Streams& streams) { return Progress(steps, streams).run(); }

}  // namespace ddl::topology::verification
