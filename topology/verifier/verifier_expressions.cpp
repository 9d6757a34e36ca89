#include "topology/verifier/verifier_expressions.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>

namespace ddl::topology::verification {

Expressions::Expressions(int ranks) : ranks_(static_cast<std::uint32_t>(ranks)), all_(ranks_) {
  for (Expression& own : all_) own.complete = ranks_ == 1;
}

Expressions::Id Expressions::combine(Id target, Id source, StepId step, bool is_rounded) {
  return add({target, source}, step, is_rounded);
}

Expressions::Id Expressions::add(const Operands& operands, StepId step, bool is_rounded) {
  const auto id = static_cast<Id>(all_.size());
  const auto [entry, is_new] = known_.try_emplace({operands[0], operands[1], is_rounded ? 0U : 1U}, id);
  if (!is_new) return entry->second;
  std::uint64_t leaves = 0;
  for (const Id part : operands) leaves += part == nothing ? 0 : all_[part].leaves;
  all_.push_back({operands, static_cast<std::uint32_t>(std::min<std::uint64_t>(leaves, UINT32_MAX)), step,
                  is_rounded, false});
  return id;
}

bool Expressions::complete(Id id) {
  if (all_[id].complete) return true;
  if (all_[id].leaves != ranks_) return false;
  // With as many leaves as ranks, each rank is there once if none is there twice; and the walk is short.
  std::vector<bool> seen(ranks_, false);
  std::vector<Id> open{id};
  while (!open.empty()) {
    const Id at = open.back();
    open.pop_back();
    if (is_own_data(at)) {
      if (seen[at]) return false;
      seen[at] = true;
    } else {
      for (const Id part : operands_of(at)) open.push_back(part);
    }
  }
  all_[id].complete = true;
  return true;
}

std::vector<Expressions::Id> Expressions::parts_of(Id id) const {
  std::vector<Id> parts{id};
  std::vector<bool> seen(std::size_t{id} + 1, false);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (is_own_data(parts[i])) continue;
    for (const Id part : operands_of(parts[i])) {
      if (!seen[part]) parts.push_back(part);
      seen[part] = true;
    }
  }
  return parts;
}

bool Expressions::has_all(Id id) const {
  return std::ranges::count_if(parts_of(id), [&](Id part) { return is_own_data(part); }) == ranks_;
}

StepId Expressions::first_doubling(Id id) const {
  std::vector<Id> parts = parts_of(id);
  const std::size_t words = (ranks_ + std::size_t{63}) / 64;
  constexpr std::size_t most_words = std::size_t{1} << 23;  // 64 MiB; this only improves a message
  if (parts.size() * words > most_words) return no_step;
  std::ranges::sort(parts);  // parts come before what is made of them
  std::vector<std::uint64_t> sets(parts.size() * words, 0);
  const auto set_of = [&](Id part) {
    const auto at = std::ranges::lower_bound(parts, part) - parts.begin();
    return sets.begin() + at * static_cast<std::ptrdiff_t>(words);
  };
  for (const Id part : parts) {
    const auto set = set_of(part);
    if (is_own_data(part)) {
      set[part / 64] |= std::uint64_t{1} << part % 64;
      continue;
    }
    for (const Id operand : operands_of(part)) {
      const auto held = set_of(operand);
      for (std::size_t word = 0; word < words; ++word) {
        const auto w = static_cast<std::ptrdiff_t>(word);
        if ((set[w] & held[w]) != 0) return all_[part].step;
        set[w] |= held[w];
      }
    }
  }
  return no_step;
}

std::string Expressions::describe(Id id, const StepNumbers& steps) const {
  if (id == nothing) return "nothing that was ever written";
  std::map<Id, std::uint64_t, std::greater<>> open{{id, 1}};
  std::vector<std::uint64_t> times(ranks_, 0);
  constexpr std::uint64_t many = std::uint64_t{1} << 62;
  while (!open.empty()) {
    const auto [at, number] = *open.begin();
    open.erase(open.begin());
    if (is_own_data(at)) {
      times[at] = number;
      continue;
    }
    for (const Id part : operands_of(at)) {
      std::uint64_t& sum = open[part];
      sum = std::min(many, sum + number);
    }
  }
  std::string text;
  const auto doubled = std::ranges::find_if(times, [](std::uint64_t number) { return number > 1; });
  if (doubled != times.end()) {
    text = fmt::format("rank {}'s contribution {} times", doubled - times.begin(), *doubled);
    if (const StepId step = first_doubling(id); step != no_step) {
      text += fmt::format(" (some contribution comes in again at {})", steps.name(step));
    }
  }
  std::vector<std::size_t> missing;
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    if (times[rank] == 0) missing.push_back(rank);
  }
  if (!missing.empty()) {
    constexpr std::size_t most_named = 5;
    const auto named = std::span(missing).first(std::min(missing.size(), most_named));
    text += fmt::format("{}none of rank{} {}", text.empty() ? "" : " and ", missing.size() == 1 ? "" : "s",
                        fmt::join(named, ", "));
    if (missing.size() > named.size()) text += fmt::format(" and {} more", missing.size() - named.size());
  }
  return text.empty() ? "every rank's contribution once" : text;
}

void append(Pieces& pieces, const Piece& piece) {
  if (!pieces.empty()) {
    Piece& last = pieces.back();
    if (last.expression == piece.expression && last.finished == piece.finished &&
        last.origin + last.length == piece.origin) {
      last.length += piece.length;
      return;
    }
  }
  pieces.push_back(piece);
}

SymbolicMemory::SymbolicMemory(std::size_t size, Expressions::Id own, std::size_t own_begin,
                               std::size_t own_end)
    : size_(size) {
  if (own_begin > 0) cells_.emplace(0, Cell{});
  if (own_begin < own_end) cells_.emplace(own_begin, Cell{own_begin, own, false});
  if (own_end < size) cells_.insert_or_assign(own_end, Cell{});
}

void SymbolicMemory::read(std::size_t begin, std::size_t end, Pieces& pieces) const {
  pieces.clear();
  if (begin == end) return;
  auto cell = std::prev(cells_.upper_bound(begin));
  for (std::size_t at = begin; at < end;) {
    const auto next = std::next(cell);
    const std::size_t stop = std::min(end, next == cells_.end() ? size_ : next->first);
    append(pieces, {stop - at, cell->second.origin + (at - cell->first), cell->second.expression,
                    cell->second.finished});
    at = stop;
    cell = next;
  }
}

SymbolicMemory::Cells::iterator SymbolicMemory::split(std::size_t at) {
  if (at >= size_) return cells_.end();
  const auto next = cells_.lower_bound(at);
  if (next != cells_.end() && next->first == at) return next;
  const auto& [start, cell] = *std::prev(next);
  return cells_.emplace_hint(next, at, Cell{cell.origin + (at - start), cell.expression, cell.finished});
}

void SymbolicMemory::write(std::size_t begin, const Pieces& pieces) {
  std::size_t end = begin;
  for (const Piece& piece : pieces) end += piece.length;
  auto cell = split(begin);
  const auto last = split(end);
  // Keeps the cells that begin where a piece does: mostly all of them.
  std::size_t at = begin;
  for (const Piece& piece : pieces) {
    while (cell != last && cell->first < at) cell = cells_.erase(cell);
    const Cell content{piece.origin, piece.expression, piece.finished};
    if (cell != last && cell->first == at) {
      cell->second = content;
      ++cell;
    } else {
      cells_.emplace_hint(cell, at, content);
    }
    at += piece.length;
  }
  cells_.erase(cell, last);
}

}  // namespace ddl::topology::verification
