#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <span>

#include "topology/verifier/verifier_checks.hpp"

namespace ddl::topology::verification {
namespace {

/// The steps of one direction of every rank, by rank, peer and list order.
class Direction {
 public:
  Direction(const StepNumbers& steps, bool (*is_mine)(StepKind)) : steps_(steps) {
    begin_.push_back(0);
    StepId id = 0;
    for (const Program& program : steps.schedule().ranks) {
      for (const Step& step : program.steps) {
        if (is_mine(step.kind)) ids_.push_back(id);
        ++id;
      }
      std::stable_sort(ids_.begin() + static_cast<std::ptrdiff_t>(begin_.back()), ids_.end(),
                       [&](StepId a, StepId b) { return steps[a].peer < steps[b].peer; });
      begin_.push_back(ids_.size());
    }
  }

  [[nodiscard]] std::span<const StepId> of_rank(int rank) const {
    const auto r = static_cast<std::size_t>(rank);
    return std::span(ids_).subspan(begin_[r], begin_[r + 1] - begin_[r]);
  }
  [[nodiscard]] std::span<const StepId> stream(int rank, int peer) const {
    const auto all = of_rank(rank);
    const auto first = std::ranges::lower_bound(all, peer, {}, [&](StepId id) { return steps_[id].peer; });
    const auto last = std::ranges::upper_bound(all, peer, {}, [&](StepId id) { return steps_[id].peer; });
    return {first, last};
  }
  /// The streams of a rank, each with its peer.
  template <typename Visit>
  void for_each_stream(int rank, Visit visit) const {
    const auto all = of_rank(rank);
    for (std::size_t i = 0; i < all.size();) {
      const int peer = steps_[all[i]].peer;
      std::size_t end = i;
      while (end < all.size() && steps_[all[end]].peer == peer) ++end;
      if (!visit(peer, all.subspan(i, end - i))) return;
      i = end;
    }
  }

 private:
  const StepNumbers& steps_;
  std::vector<StepId> ids_;
  std::vector<std::size_t> begin_;
};

void order(std::span<const StepId> stream, Streams& streams) {
  for (std::size_t i = 1; i < stream.size(); ++i) {
    streams.next[stream[i - 1]] = stream[i];
    streams.has_before[stream[i]] = true;
  }
}

}  // namespace

Streams match_streams(const StepNumbers& steps) {
  Streams streams;
  streams.partner.assign(steps.size(), no_step);
  streams.next.assign(steps.size(), no_step);
  streams.has_before.assign(steps.size(), false);
  const Direction sends(steps, [](StepKind kind) { return kind == StepKind::send; });
  const Direction receives(steps, [](StepKind kind) { return is_receive(kind); });
  const int ranks = static_cast<int>(steps.schedule().ranks.size());
  for (int rank = 0; rank < ranks && streams.problem.empty(); ++rank) {
    sends.for_each_stream(rank, [&](int peer, std::span<const StepId> sent) {
      const std::span<const StepId> received = receives.stream(peer, rank);
      order(sent, streams);
      for (std::size_t i = 0; i < std::min(sent.size(), received.size()); ++i) {
        const Step& send = steps[sent[i]];
        const Step& receive = steps[received[i]];
        if (send.size() != receive.size()) {
          streams.problem = fmt::format(
              "{}: found {} elements sent, expected {}: transfer {} from {} to {} meets {}",
              steps.name(sent[i]), send.size(), receive.size(), i, rank, peer, steps.name(received[i]));
          return false;
        }
        if (send.narrow != receive.narrow) {
          streams.problem = fmt::format("{}: found that it meets {}, expected both to be narrow or neither",
                                        steps.name(sent[i]), steps.name(received[i]));
          return false;
        }
        streams.partner[sent[i]] = received[i];
        streams.partner[received[i]] = sent[i];
      }
      if (sent.size() > received.size()) {
        streams.problem = fmt::format(
            "{}: found a send that is never received: rank {} sends {} times to rank {}, which receives {} "
            "times from it; expected as many",
            steps.name(sent[received.size()]), rank, sent.size(), peer, received.size());
      }
      return streams.problem.empty();
    });
  }
  for (int rank = 0; rank < ranks && streams.problem.empty(); ++rank) {
    receives.for_each_stream(rank, [&](int peer, std::span<const StepId> received) {
      order(received, streams);
      const std::size_t sent = sends.stream(peer, rank).size();
      if (received.size() > sent) {
        streams.problem = fmt::format(
            "{}: found a receive that waits for nothing: rank {} receives {} times from rank {}, which sends "
            "{} times to it; expected as many",
            steps.name(received[sent]), rank, received.size(), peer, sent);
      }
      return streams.problem.empty();
    });
  }
  return streams;
}

}  // namespace ddl::topology::verification
