#pragma once

#include <array>
#include <span>

#include "topology/lowering/partition.hpp"

namespace ddl::topology {

/// What the members of a group divide among them, as numbered pieces: in a reduce-scatter each ends with one,
/// in an all-gather it starts with one. Which piece is whose is up to the algorithm (`piece_of_member`).
class Shares {
 public:
  virtual ~Shares() = default;
  /// The ranges of pieces [first, last), none empty, ascending and apart from one another. Valid until the
  /// next call.
  virtual std::span<const Range> pieces(int first, int last) = 0;
  std::span<const Range> piece(int index) { return pieces(index, index + 1); }
};

/// A range cut into equal pieces.
class EqualShares final : public Shares {
 public:
  EqualShares(Range whole, int size) : pieces_(whole, size) {}

  std::span<const Range> pieces(int first, int last) override {
    found_[0] = pieces_.pieces(first, last);
    return std::span(found_).first(found_[0].empty() ? 0 : 1);
  }

 private:
  Partition pieces_;
  std::array<Range, 1> found_{};
};

}  // namespace ddl::topology
