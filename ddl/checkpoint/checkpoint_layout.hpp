#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/checkpoint.hpp"
#include "ddl/checkpoint/safetensors.hpp"

namespace ddl {

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
  /// What the piece is there: the tensor, or, of a part, a flat tensor of its own.
  struct Stored {
    std::string name;
    TensorForm form;
    bool is_whole;
  };
  [[nodiscard]] static Stored stored(const std::string& name, const TensorForm& form,
                                     const TensorPiece& piece);
  bool operator==(const CheckpointLayout&) const = default;
};

/// Throws `invalid_argument` for contents that could not be saved whatever the other ranks have. Of state and
/// metric rank 0's count.
void check_contents(const CheckpointContents& contents, std::optional<double> metric, bool is_root);

/// All that the layout depends on, in one text.
std::string describe_contents(const CheckpointContents& contents);

/// Puts together what all ranks have. Whole: rank 0 gives what all have. Sharded: shared out by bytes.
/// Collective, errors are agreed: `mismatch` and `invalid_argument`.
CheckpointLayout agree_on_layout(const Context& context, const CheckpointContents& contents, bool sharded);

}  // namespace ddl
