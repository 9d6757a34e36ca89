#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "topology/verifier/verifier_expressions.hpp"

namespace ddl::topology::verification {

/// A stretch that holds elements [origin, origin + length) of the collective's buffer as one expression.
struct Piece {
  std::size_t length = 0;
  std::size_t origin = 0;
  Expressions::Id expression = Expressions::nothing;
  bool finished = false;

  friend bool operator==(const Piece&, const Piece&) = default;
};

/// The pieces of a range, merged wherever possible.
using Pieces = std::vector<Piece>;
void append(Pieces& pieces, const Piece& piece);

/// The symbolic content of one rank's addresses.
class SymbolicMemory {
 public:
  /// [own_begin, own_end) holds the rank's own data, the rest of [0, size) nothing.
  SymbolicMemory(std::size_t size, Expressions::Id own, std::size_t own_begin, std::size_t own_end);

  /// Replaces `pieces` by those of [begin, end).
  void read(std::size_t begin, std::size_t end, Pieces& pieces) const;
  /// Writes pieces from `begin` on.
  void write(std::size_t begin, const Pieces& pieces);

 private:
  struct Cell {  // from its key up to the next key
    std::size_t origin = 0;
    Expressions::Id expression = Expressions::nothing;
    bool finished = false;
  };
  using Cells = std::map<std::size_t, Cell>;

  Cells::iterator split(std::size_t at);

  Cells cells_;
  std::size_t size_;
};

}  // namespace ddl::topology::verification
