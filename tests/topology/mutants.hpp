#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "ddl/topology/schedule.hpp"

namespace ddl::topology {

/// Ways to damage a step of a schedule. Mutations of pairs change a send and its receive alike, so that they
/// still match.
enum class Mutation {
  drop,
  duplicate,
  duplicate_later,
  swap_with_next,
  swap_with_any,
  misdirect,
  move_to_another_rank,
  shift_up,
  shift_down,
  shorten_at_the_end,
  shorten_at_the_begin,
  change_kind,
  shift_source,
  toggle_joined,
  toggle_narrow,
  drop_pair,
  duplicate_pair,
  shift_pair,
  shorten_pair,
  shift_receive_of_pair,
  toggle_narrow_of_pair,
  count_,
};
constexpr int mutations = static_cast<int>(Mutation::count_);

constexpr std::string_view to_string(Mutation mutation) {
  constexpr std::array<std::string_view, mutations> names = {"drop",
                                                             "duplicate",
                                                             "duplicate_later",
                                                             "swap_with_next",
                                                             "swap_with_any",
                                                             "misdirect",
                                                             "move_to_another_rank",
                                                             "shift_up",
                                                             "shift_down",
                                                             "shorten_at_the_end",
                                                             "shorten_at_the_begin",
                                                             "change_kind",
                                                             "shift_source",
                                                             "toggle_joined",
                                                             "toggle_narrow",
                                                             "drop_pair",
                                                             "duplicate_pair",
                                                             "shift_pair",
                                                             "shorten_pair",
                                                             "shift_receive_of_pair",
                                                             "toggle_narrow_of_pair"};
  return names[static_cast<std::size_t>(mutation)];
}

/// The receive that belongs to a send: rank and step.
inline std::pair<std::size_t, std::size_t> receive_of(const Schedule& schedule, std::size_t rank,
                                                      std::size_t at) {
  const auto& steps = schedule.ranks[rank].steps;
  const Step& send = steps[at];
  auto before = std::count_if(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(at),
                              [&](const Step& s) { return s.kind == StepKind::send && s.peer == send.peer; });
  const auto peer = static_cast<std::size_t>(send.peer);
  std::size_t i = 0;
  for (;; ++i) {
    const Step& step = schedule.ranks[peer].steps[i];
    if (is_receive(step.kind) && step.peer == static_cast<int>(rank) && before-- == 0) return {peer, i};
  }
}

/// The schedule with one mutation of one step; nothing if the mutation does not apply or changes nothing.
template <typename Random>
std::optional<Schedule> mutant(const Schedule& original, std::size_t rank, std::size_t at, Mutation mutation,
                               Random& random) {
  Schedule schedule = original;
  auto& steps = schedule.ranks[rank].steps;
  Step& step = steps[at];
  const auto position = steps.begin() + static_cast<std::ptrdiff_t>(at);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const auto erase = [](std::vector<Step>& list, std::size_t i) {
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
  };
  const auto repeat = [](std::vector<Step>& list, std::size_t i) {
    const Step copy = list[i];
    list.insert(list.begin() + static_cast<std::ptrdiff_t>(i), copy);
  };
  const bool is_pair = mutation >= Mutation::drop_pair;
  if (is_pair && step.kind != StepKind::send) return {};
  const auto [peer, other_at] = is_pair ? receive_of(original, rank, at) : std::pair{rank, at};
  auto& others = schedule.ranks[peer].steps;
  const std::size_t ranks = schedule.ranks.size();
  switch (mutation) {
    case Mutation::drop:
      erase(steps, at);
      break;
    case Mutation::duplicate:
      repeat(steps, at);
      break;
    case Mutation::duplicate_later: {
      const Step copy = step;
      steps.insert(position + 1 + static_cast<std::ptrdiff_t>(below(steps.size() - at)), copy);
      break;
    }
    case Mutation::swap_with_next:
      if (at + 1 == steps.size()) return {};
      std::swap(step, steps[at + 1]);
      break;
    case Mutation::swap_with_any:
      std::swap(step, steps[below(steps.size())]);
      break;
    case Mutation::misdirect:
      if (is_local(step.kind)) return {};
      step.peer = static_cast<int>(below(ranks + 2)) - 1;
      break;
    case Mutation::move_to_another_rank: {
      auto& target = schedule.ranks[below(ranks)].steps;
      const Step copy = step;
      erase(steps, at);
      target.insert(target.begin() + static_cast<std::ptrdiff_t>(below(target.size() + 1)), copy);
      break;
    }
    case Mutation::shift_up:
      ++step.begin;
      ++step.end;
      break;
    case Mutation::shift_down:
      if (step.begin == 0) return {};
      --step.begin;
      --step.end;
      break;
    case Mutation::shorten_at_the_end:
      --step.end;
      break;
    case Mutation::shorten_at_the_begin:
      ++step.begin;
      break;
    case Mutation::change_kind:
      step.kind = static_cast<StepKind>(below(7));
      break;
    case Mutation::shift_source:
      if (!has_source(step.kind) && step.kind != StepKind::round) return {};
      step.source += random() % 2 == 0 ? 1 : std::size_t{0} - 1;
      break;
    case Mutation::toggle_joined:
      step.joined = !step.joined;
      break;
    case Mutation::toggle_narrow:
      if (is_local(step.kind)) return {};
      step.narrow = !step.narrow;
      break;
    case Mutation::toggle_narrow_of_pair:
      step.narrow = !step.narrow;
      others[other_at].narrow = step.narrow;
      break;
    case Mutation::drop_pair:
      erase(steps, at);
      erase(others, other_at);
      break;
    case Mutation::duplicate_pair:
      repeat(steps, at);
      repeat(others, other_at);
      break;
    case Mutation::shift_pair:
      ++step.begin;
      ++step.end;
      ++others[other_at].begin;
      ++others[other_at].end;
      break;
    case Mutation::shorten_pair:
      --step.end;
      --others[other_at].end;
      break;
    case Mutation::shift_receive_of_pair:
      ++others[other_at].begin;
      ++others[other_at].end;
      break;
    case Mutation::count_:
      return {};
  }
  if (schedule.ranks == original.ranks) return {};
  return schedule;
}

}  // namespace ddl::topology
