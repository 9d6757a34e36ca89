#include "topology/simulator/simulator_streams.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "ddl/error.hpp"
#include "ddl/hash.hpp"

namespace ddl::topology {
namespace {

constexpr std::size_t most_elements = std::size_t{1} << 50U;

[[noreturn]] void fail(const std::string& found, const std::string& expected) {
  throw Error(ErrorCode::invalid_argument, fmt::format("schedule: found {}, expected {}", found, expected));
}

}  // namespace

Streams::Streams(const Schedule& schedule) {
  number_steps(schedule);
  find_streams(schedule);
  list_transfers(schedule);
  check_lengths(schedule);
}

void Streams::number_steps(const Schedule& schedule) {
  first_step_.push_back(0);
  const int ranks = static_cast<int>(schedule.ranks.size());
  for (int rank = 0; rank < ranks; ++rank) {
    const auto& steps = schedule.ranks[static_cast<std::size_t>(rank)].steps;
    if (steps.size() >= none - first_step_.back()) fail("2^32 steps or more", "fewer");
    first_step_.push_back(first_step_.back() + static_cast<std::uint32_t>(steps.size()));
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const Step& step = steps[i];
      const bool is_fine = is_local(step.kind) || (step.peer >= 0 && step.peer < ranks && step.peer != rank);
      if (!is_fine) {
        fail(fmt::format("peer {} in step {} of rank {}", step.peer, i, rank),
             fmt::format("another of the {} ranks", ranks));
      }
      if (step.begin >= step.end) {
        fail(fmt::format("step {} of rank {} to be {}", i, rank, to_string(step)), "at least one element");
      }
      if (std::max(step.end, step.source) > most_elements) {
        fail(fmt::format("step {} of rank {} to be {}", i, rank, to_string(step)),
             fmt::format("at most {} elements", most_elements));
      }
    }
  }
}

void Streams::find_streams(const Schedule& schedule) {
  const std::size_t ranks = schedule.ranks.size();
  of_step_.assign(steps(), none);
  // By receiver, those that send to it, ascending.
  std::vector<std::vector<std::pair<int, std::uint32_t>>> incoming(ranks);
  std::vector<std::uint32_t> stream_with(ranks);
  std::vector<std::size_t> seen(ranks, SIZE_MAX);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::uint32_t* const of = of_step_.data() + first_step_[rank];
    const auto& steps = schedule.ranks[rank].steps;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].kind != StepKind::send) continue;
      const auto peer = static_cast<std::size_t>(steps[i].peer);
      if (seen[peer] != rank) {
        seen[peer] = rank;
        stream_with[peer] = static_cast<std::uint32_t>(streams_.size());
        streams_.push_back({static_cast<int>(rank), steps[i].peer});
        incoming[peer].emplace_back(static_cast<int>(rank), stream_with[peer]);
      }
      of[i] = stream_with[peer];
      ++streams_[of[i]].transfers;
    }
  }
  std::vector<std::uint32_t> received(streams_.size(), 0);
  seen.assign(ranks, SIZE_MAX);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::uint32_t* const of = of_step_.data() + first_step_[rank];
    const auto& steps = schedule.ranks[rank].steps;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (!is_receive(steps[i].kind)) continue;
      const auto peer = static_cast<std::size_t>(steps[i].peer);
      if (seen[peer] != rank) {
        seen[peer] = rank;
        const auto sender = std::ranges::lower_bound(incoming[rank], steps[i].peer, {},
                                                     &std::pair<int, std::uint32_t>::first);
        if (sender == incoming[rank].end() || sender->first != steps[i].peer) {
          fail(fmt::format("a receive of rank {} from {}, which sends it nothing", rank, peer),
               "a send for each receive");
        }
        stream_with[peer] = sender->second;
      }
      of[i] = stream_with[peer];
      ++received[of[i]];
    }
  }
  std::uint32_t first = 0;
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    Stream& stream = streams_[i];
    if (received[i] != stream.transfers) {
      fail(fmt::format("{} sends of rank {} to {}, and {} receives", stream.transfers, stream.from, stream.to,
                       received[i]),
           "a receive for each send");
    }
    stream.first = first;
    first += stream.transfers;
  }
  sends_.resize(first);
  receives_.resize(first);
}

void Streams::list_transfers(const Schedule& schedule) {
  std::vector<std::uint32_t> next_send;
  for (const Stream& stream : streams_) next_send.push_back(stream.first);
  std::vector<std::uint32_t> next_receive = next_send;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    const auto& steps = schedule.ranks[rank].steps;
    for (std::uint32_t i = 0; i < steps.size(); ++i) {
      const std::uint32_t stream = of_step_[first_step_[rank] + i];
      if (stream == none) continue;
      if (steps[i].kind == StepKind::send) {
        sends_[next_send[stream]++] = i;
      } else {
        receives_[next_receive[stream]++] = i;
      }
    }
  }
}

void Streams::check_lengths(const Schedule& schedule) const {
  for (const Stream& stream : streams_) {
    const auto& from = schedule.ranks[static_cast<std::size_t>(stream.from)].steps;
    const auto& to = schedule.ranks[static_cast<std::size_t>(stream.to)].steps;
    for (std::uint32_t i = stream.first; i < stream.first + stream.transfers; ++i) {
      if (from[sends_[i]].size() != to[receives_[i]].size()) {
        fail(fmt::format("'{}' of rank {} to meet '{}' of rank {}", to_string(from[sends_[i]]), stream.from,
                         to_string(to[receives_[i]]), stream.to),
             "equal lengths");
      }
    }
  }
}

namespace {

std::uint64_t hash_of(const Dependencies& dependencies) {
  Fnv hash;
  for (std::size_t step = 0; step < dependencies.steps(); ++step) {
    for (const std::uint32_t later : dependencies.after(step)) hash.add(later);
    hash.add(UINT32_MAX);
  }
  return hash.value();
}

}  // namespace

SharedDependencies::SharedDependencies(const Schedule& schedule) {
  std::unordered_multimap<std::uint64_t, std::uint32_t> known;
  for (const Program& program : schedule.ranks) {
    Dependencies dependencies(program);
    const std::uint64_t hash = hash_of(dependencies);
    const auto [first, last] = known.equal_range(hash);
    auto same = first;
    while (same != last && tables_[same->second] != dependencies) ++same;
    if (same != last) {
      table_of_.push_back(same->second);
      continue;
    }
    const auto table = static_cast<std::uint32_t>(tables_.size());
    known.emplace(hash, table);
    table_of_.push_back(table);
    tables_.push_back(std::move(dependencies));
  }
}

}  // namespace ddl::topology
