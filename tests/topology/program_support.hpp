#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ddl/topology/schedule.hpp"

// Hand-written programs, and some schedules that are made without the library's lowerings.
namespace ddl::topology {

inline Step send(int peer, std::size_t begin, std::size_t end) {
  return {.kind = StepKind::send, .peer = peer, .begin = begin, .end = end};
}
inline Step receive(int peer, std::size_t begin, std::size_t end) {
  return {.kind = StepKind::receive, .peer = peer, .begin = begin, .end = end};
}
inline Step receive_reduce(int peer, std::size_t begin, std::size_t end) {
  return {.kind = StepKind::receive_reduce, .peer = peer, .begin = begin, .end = end};
}
inline Step reduce(std::size_t begin, std::size_t end, std::size_t source) {
  return {.kind = StepKind::reduce, .begin = begin, .end = end, .source = source};
}
inline Step copy(std::size_t begin, std::size_t end, std::size_t source) {
  return {.kind = StepKind::copy, .begin = begin, .end = end, .source = source};
}
inline Step finish(std::size_t begin, std::size_t end) {
  return {.kind = StepKind::finish, .begin = begin, .end = end};
}

inline Schedule schedule_of(Collective collective, std::size_t count, std::vector<Program> ranks,
                            int root = 0) {
  return {.collective = collective, .root = root, .count = count, .ranks = std::move(ranks)};
}

/// Ring reduce-scatter, finish and ring all-gather in steps of count / ranks elements. With more ranks than
/// elements, some pieces are empty.
inline Schedule ring_all_reduce(int ranks, std::size_t count) {
  const auto n = static_cast<std::size_t>(ranks);
  Schedule schedule = schedule_of(Collective::all_reduce, count, std::vector<Program>(n));
  const auto begin = [&](std::size_t piece) { return count * (piece % n) / n; };
  const auto end = [&](std::size_t piece) { return count * (piece % n + 1) / n; };
  for (std::size_t r = 0; r < n; ++r) {
    std::vector<Step>& steps = schedule.ranks[r].steps;
    const int next = static_cast<int>((r + 1) % n);
    const int previous = static_cast<int>((r + n - 1) % n);
    const auto add = [&](const Step& step) {
      if (step.begin < step.end) steps.push_back(step);
    };
    for (std::size_t i = 0; i + 1 < n; ++i) {
      add(send(next, begin(r + n - i), end(r + n - i)));
      add(receive_reduce(previous, begin(r + 2 * n - i - 1), end(r + 2 * n - i - 1)));
    }
    add(finish(begin(r + 1), end(r + 1)));
    for (std::size_t i = 0; i + 1 < n; ++i) {
      add(send(next, begin(r + n + 1 - i), end(r + n + 1 - i)));
      add(receive(previous, begin(r + 2 * n - i), end(r + 2 * n - i)));
    }
  }
  return schedule;
}

/// Each rank sends everything to every other rank and reduces the received data in rank order, in scratch
/// memory, whose block b holds rank b's data.
inline Schedule one_shot_all_reduce(int ranks, std::size_t count) {
  const auto n = static_cast<std::size_t>(ranks);
  Schedule schedule = schedule_of(Collective::all_reduce, count, std::vector<Program>(n));
  for (int r = 0; r < ranks; ++r) {
    Program& program = schedule.ranks[static_cast<std::size_t>(r)];
    program.scratch = n * count;
    const auto block = [&](int of) { return count * static_cast<std::size_t>(1 + of); };
    for (int i = 1; i < ranks; ++i) {
      const int to = (r + i) % ranks;
      const int from = (r + ranks - i) % ranks;
      program.steps.push_back(send(to, 0, count));
      program.steps.push_back(receive(from, block(from), block(from) + count));
    }
    program.steps.push_back(copy(block(r), block(r) + count, 0));
    for (int other = 1; other < ranks; ++other) {
      program.steps.push_back(reduce(block(0), block(0) + count, block(other)));
    }
    program.steps.push_back(finish(block(0), block(0) + count));
    program.steps.push_back(copy(0, count, block(0)));
  }
  return schedule;
}

/// A broadcast from the root to the next rank and so on, in `chunks` pieces.
inline Schedule chain_broadcast(int ranks, std::size_t count, int root, std::size_t chunks) {
  Schedule schedule =
      schedule_of(Collective::broadcast, count, std::vector<Program>(static_cast<std::size_t>(ranks)), root);
  for (int position = 0; position < ranks; ++position) {
    const int rank = (root + position) % ranks;
    std::vector<Step>& steps = schedule.ranks[static_cast<std::size_t>(rank)].steps;
    for (std::size_t c = 0; c < chunks; ++c) {
      const std::size_t begin = count * c / chunks;
      const std::size_t end = count * (c + 1) / chunks;
      if (position > 0) steps.push_back(receive((rank + ranks - 1) % ranks, begin, end));
      if (position + 1 < ranks) steps.push_back(send((rank + 1) % ranks, begin, end));
    }
  }
  return schedule;
}

}  // namespace ddl::topology
