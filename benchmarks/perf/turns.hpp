#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <random>
#include <span>
#include <string_view>
#include <vector>

namespace perf {

/// What takes turns with others to be timed, of one of two kinds.
struct Contender {
  std::size_t kind = 0;          ///< 0 or 1.
  std::function<double()> time;  ///< Runs it once: ns.
};

/// Both kinds, `each` times, in an order that is drawn.
std::vector<std::size_t> drawn_kinds(std::size_t each, std::mt19937_64& random);

/// Times of contenders, by kind: of each one the median over all rounds, ns.
using TimesByKind = std::array<std::vector<double>, 2>;

/// In each round all have a turn, in an order drawn anew: what else a machine does meets both kinds alike.
/// Ranks whose turns belong together need a `random` of one state.
TimesByKind time_in_turns(std::span<const Contender> contenders, std::size_t rounds, std::mt19937_64& random);

double median(std::vector<double> values);

/// Two lines for people: the kinds' medians and their difference, and how far those of kind 0 are apart,
/// which such a figure cannot be told from. `head` goes before, as "2 ranks, all_reduce of 4096 bytes".
void print(const TimesByKind& times, std::string_view head, std::string_view kind_0, std::string_view kind_1);

}  // namespace perf
