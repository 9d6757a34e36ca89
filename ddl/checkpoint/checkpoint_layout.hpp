#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/checkpoint.hpp"

namespace ddl {

/// A tensor's type and shape, known to be a size that fits 64 bits.
struct TensorForm {
  DataType type = DataType::f32;
  std::vector<std::int64_t> shape;

  [[nodiscard]] std::uint64_t elements() const noexcept;
  [[nodiscard]] std::uint64_t bytes() const noexcept { return elements() * size_of(type); }
  bool operator==(const TensorForm&) const = default;
};

/// Elements of a tensor, and the rank that gives them.
struct TensorPiece {
  int rank = 0;
  std::uint64_t first = 0;
  std::uint64_t count = 0;

  [[nodiscard]] std::uint64_t end() const noexcept { return first + count; }
  bool operator==(const TensorPiece&) const = default;
};

/// What is in a checkpoint, and which rank gives what: the same on all ranks.
struct CheckpointLayout {
  struct Tensor {
    TensorForm form;
    std::vector<TensorPiece> pieces;  ///< In order, without gaps or overlaps; one for an empty tensor.
    bool operator==(const Tensor&) const = default;
  };
  using Forms = std::map<std::string, TensorForm>;
  struct Group {
    std::map<std::string, Tensor> tensors;
    std::vector<Forms> per_rank;  ///< By rank; or empty.
    bool operator==(const Group&) const = default;
  };

  int ranks = 1;
  bool sharded = false;
  std::map<std::string, Group> groups;

  /// Name of the file that holds complete tensors, and of the one of rank `rank`.
  [[nodiscard]] static std::string whole_file(std::string_view group);
  [[nodiscard]] std::string rank_file(std::string_view group, int rank) const;
  /// The one with this piece of a tensor.
  [[nodiscard]] std::string file_of(std::string_view group, const TensorPiece& piece) const;
  /// What the piece is called there.
  [[nodiscard]] static std::string stored_name(std::string_view name, const Tensor& tensor,
                                               const TensorPiece& piece);
  bool operator==(const CheckpointLayout&) const = default;
};

/// Throws `invalid_argument` for contents that could not be saved whatever the other ranks have.
void check_contents(const CheckpointContents& contents);

/// All that the layout depends on, in one text.
std::string describe_contents(const CheckpointContents& contents);

/// Puts together what all ranks have. Whole: rank 0 gives what all have. Sharded: shared out by bytes.
/// Collective, errors are agreed: `mismatch` and `invalid_argument`.
CheckpointLayout agree_on_layout(Context& context, const CheckpointContents& contents, bool sharded);

}  // namespace ddl
