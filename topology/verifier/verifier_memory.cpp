#include "topology/verifier/verifier_memory.hpp"

#include <algorithm>
#include <iterator>

namespace ddl::topology::verification {

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
