#include "topology/program/streams.hpp"

#include <fmt/format.h>

namespace ddl::topology {

StepNumbers::StepNumbers(const Schedule& schedule) : schedule_(schedule) {
  begin_.reserve(schedule.ranks.size() + 1);
  begin_.push_back(0);
  for (const Program& program : schedule.ranks) {
    begin_.push_back(begin_.back() + static_cast<StepId>(program.steps.size()));
  }
  rank_.reserve(begin_.back());
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    rank_.insert(rank_.end(), schedule.ranks[rank].steps.size(), static_cast<std::int32_t>(rank));
  }
}

std::string StepNumbers::name(StepId id) const {
  return fmt::format("rank {}, step {} ({})", rank(id), index(id), to_string((*this)[id]));
}

namespace {

/// Describes the first step without a match between two ranks whose sends and receives differ in number.
std::string describe_unmatched(const StepNumbers& steps, int from, int to) {
  const auto steps_with = [&](int rank, int peer, auto is_mine) {
    std::vector<StepId> found;
    for (StepId id = steps.first(as_index(rank)); id < steps.size(); ++id) {
      if (steps.rank(id) != rank) break;
      if (steps[id].peer == peer && is_mine(steps[id].kind)) found.push_back(id);
    }
    return found;
  };
  const auto sent = steps_with(from, to, [](StepKind kind) { return kind == StepKind::send; });
  const auto received = steps_with(to, from, [](StepKind kind) { return is_receive(kind); });
  if (sent.size() > received.size()) {
    return fmt::format(
        "{}: found a send that is never received: rank {} sends {} times to rank {}, which receives {} "
        "times from it; expected as many",
        steps.name(sent[received.size()]), from, sent.size(), to, received.size());
  }
  return fmt::format(
      "{}: found a receive that waits for nothing: rank {} receives {} times from rank {}, which sends "
      "{} times to it; expected as many",
      steps.name(received[sent.size()]), to, received.size(), from, sent.size());
}

}  // namespace

Streams::Streams(const StepNumbers& steps) : transfer_of_(steps.size(), none), problem_(match(steps)) {
  if (problem_.empty()) problem_ = list_transfers(steps);
}

std::string Streams::match(const StepNumbers& steps) {
  const std::vector<Program>& programs = steps.schedule().ranks;
  const std::size_t ranks = programs.size();
  std::vector<std::vector<std::uint32_t>> incoming(ranks);  // by rank: the streams to it
  std::vector<std::uint32_t> stream_with(ranks, none);      // by peer, for one rank at a time
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::size_t known = streams_.size();
    StepId id = steps.first(rank);
    for (const Step& step : programs[rank].steps) {
      const StepId own = id++;
      if (step.kind != StepKind::send) continue;
      std::uint32_t& stream = stream_with[as_index(step.peer)];
      if (stream == none) {
        stream = static_cast<std::uint32_t>(streams_.size());
        streams_.push_back({static_cast<int>(rank), step.peer});
        incoming[as_index(step.peer)].push_back(stream);
      }
      transfer_of_[own] = stream;
      ++streams_[stream].transfers;
    }
    for (const Stream& stream : std::span(streams_).subspan(known)) stream_with[as_index(stream.to)] = none;
  }
  std::vector<std::uint32_t> received(streams_.size(), 0);
  StepId lone = no_step;  // a receive from a rank that never sends to this one
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    for (const std::uint32_t stream : incoming[rank]) stream_with[as_index(streams_[stream].from)] = stream;
    StepId id = steps.first(rank);
    for (const Step& step : programs[rank].steps) {
      const StepId own = id++;
      if (!is_receive(step.kind)) continue;
      const std::uint32_t stream = transfer_of_[own] = stream_with[as_index(step.peer)];
      if (stream == none) {
        lone = own;
      } else {
        ++received[stream];
      }
    }
    for (const std::uint32_t stream : incoming[rank]) stream_with[as_index(streams_[stream].from)] = none;
  }
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const Stream& stream = streams_[i];
    if (received[i] != stream.transfers) return describe_unmatched(steps, stream.from, stream.to);
  }
  if (lone != no_step) return describe_unmatched(steps, steps[lone].peer, steps.rank(lone));
  return {};
}

std::string Streams::list_transfers(const StepNumbers& steps) {
  std::vector<std::uint32_t> next_send;  // by stream
  for (std::uint32_t i = 0; i < streams_.size(); ++i) {
    streams_[i].first = static_cast<std::uint32_t>(stream_of_.size());
    next_send.push_back(streams_[i].first);
    stream_of_.insert(stream_of_.end(), streams_[i].transfers, i);
  }
  std::vector<std::uint32_t> next_receive = next_send;
  sends_.resize(stream_of_.size());
  receives_.resize(stream_of_.size());
  for (StepId id = 0; id < steps.size(); ++id) {
    const std::uint32_t stream = transfer_of_[id];
    if (stream == none) continue;
    const bool sends = steps.rank(id) == streams_[stream].from;
    transfer_of_[id] = (sends ? next_send : next_receive)[stream]++;
    (sends ? sends_ : receives_)[transfer_of_[id]] = id;
  }
  for (std::uint32_t transfer = 0; transfer < transfers(); ++transfer) {
    const Step& send = steps[sends_[transfer]];
    const Step& receive = steps[receives_[transfer]];
    if (send.narrow != receive.narrow) {
      return fmt::format("{}: found that it meets {}, expected both to be narrow or neither",
                         steps.name(sends_[transfer]), steps.name(receives_[transfer]));
    }
    if (send.size() == receive.size()) continue;
    const Stream& stream = streams_[stream_of_[transfer]];
    return fmt::format("{}: found {} elements sent, expected {}: transfer {} from {} to {} meets {}",
                       steps.name(sends_[transfer]), send.size(), receive.size(), transfer - stream.first,
                       stream.from, stream.to, steps.name(receives_[transfer]));
  }
  return {};
}

}  // namespace ddl::topology
