#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ddl/hash.hpp"
#include "topology/program/streams.hpp"

namespace ddl::topology::verification {

/// What memory may hold: a rank's own data; two expressions combined in this order, with the result rounded
/// or not; or an expression rounded to the wire's type. Equal expressions have one number. A few tens of
/// bytes for each distinct one.
class Expressions {
 public:
  using Id = std::uint32_t;
  static constexpr Id nothing = UINT32_MAX;

  /// Expression r is rank r's own data.
  explicit Expressions(int ranks);

  /// `target op source`. `step` is recorded if the expression is new.
  Id combine(Id target, Id source, StepId step, bool is_rounded);
  /// `id` rounded to the wire's type.
  Id to_wire(Id id, StepId step) { return is_narrow(id) ? id : add({id, nothing}, step, true); }
  [[nodiscard]] bool is_narrow(Id id) const noexcept {
    return !is_own_data(id) && all_[id].operands[1] == nothing;
  }

  [[nodiscard]] bool is_own_data(Id id) const noexcept { return id < ranks_; }
  /// Whether it holds each rank's data exactly once. O(ranks) until that is known.
  bool complete(Id id);
  /// Whether it holds each rank's data at least once. O(expressions).
  [[nodiscard]] bool has_all(Id id) const;
  /// Describes an expression that is not complete: "rank 1's contribution 2 times (...), none of ranks 0, 3".
  [[nodiscard]] std::string describe(Id id, const StepNumbers& steps) const;

 private:
  using Operands = std::array<Id, 2>;  // the second is `nothing` if rounded to the wire
  struct Expression {
    Operands operands = {nothing, nothing};
    std::uint32_t leaves = 1;  // ranks' own data in it, with multiplicity, at most UINT32_MAX
    StepId step = no_step;
    bool is_rounded = true;
    bool complete = false;
  };

  struct Hash {
    std::size_t operator()(const std::array<Id, 3>& key) const noexcept {
      return mix((std::uint64_t{key[0]} << 32U | key[1]) + key[2]);
    }
  };
  Id add(const Operands& operands, StepId step, bool is_rounded);
  [[nodiscard]] std::span<const Id> operands_of(Id id) const noexcept {
    return std::span(all_[id].operands).first(is_narrow(id) ? 1 : 2);
  }
  /// An expression and everything that it is made of, each once.
  [[nodiscard]] std::vector<Id> parts_of(Id id) const;
  [[nodiscard]] StepId first_doubling(Id id) const;

  std::uint32_t ranks_;
  std::vector<Expression> all_;
  std::unordered_map<std::array<Id, 3>, Id, Hash> known_;  // by operands, and 1 if not rounded
};

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

/// An order in which the steps can happen: local steps, sends with their receives, and runs (by their first
/// step) with the sends that they take. If there is none, `problem` describes a cycle.
struct Order {
  std::vector<StepId> steps;
  std::string problem;
};

/// Why exactly a cycle is a deadlock: make one node of each send with its receive, and of each run with all
/// sends that it takes. A node can happen once all nodes before it have: those that its steps conflict with,
/// on the sender or on the receiver, and the earlier transfers of its streams.
///
/// Without a cycle, one of the nodes that have not happened always waits for none of the others, so every
/// order of progress reaches the end. A node on a cycle never happens. With buffers, a send may complete
/// before its receive starts; with B buffers, send k + B of a stream waits for receive k. Both relations are
/// contained in the one above (in a stream, k is before k + B), so buffers never add a cycle.
Order order_steps(const StepNumbers& steps, const Streams& streams);

/// Runs matched steps on symbols in an order from `order_steps`, and checks what each rank ends with. Returns
/// what is wrong, or an empty text.
std::string check_content(const StepNumbers& steps, const Streams& streams, const std::vector<StepId>& order);

}  // namespace ddl::topology::verification
