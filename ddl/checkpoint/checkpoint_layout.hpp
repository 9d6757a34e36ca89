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

/// What messages call it.
inline constexpr const char* save_operation = "save a checkpoint";

/// A range of a tensor's elements, and the rank that provides it.
struct TensorPiece {
  int rank = 0;
  std::uint64_t first = 0;
  std::uint64_t count = 0;

  [[nodiscard]] std::uint64_t end() const noexcept { return first + count; }
  bool operator==(const TensorPiece&) const = default;
};

/// The contents of a checkpoint, and the rank that provides each part. The same on all ranks.
struct CheckpointLayout {
  struct Tensor {
    TensorForm form;
    std::vector<TensorPiece> pieces;  ///< In order, without gaps or overlaps; one for an empty tensor.
    bool operator==(const Tensor&) const = default;
  };
  using Forms = std::map<std::string, TensorForm>;
  struct Group {
    std::map<std::string, Tensor> tensors;
    std::vector<Forms> per_rank;  ///< By rank; empty if no rank has tensors of its own.
    bool operator==(const Group&) const = default;
  };

  int ranks = 1;
  bool sharded = false;
  std::map<std::string, Group> groups;

  /// The name of the file with complete tensors, and of the file of `rank`.
  [[nodiscard]] static std::string whole_file(std::string_view group);
  [[nodiscard]] std::string rank_file(std::string_view group, int rank) const;
  /// The name of the file with this piece of a tensor.
  [[nodiscard]] std::string file_of(std::string_view group, const TensorPiece& piece) const;
  /// A piece as it is stored in a file: the whole tensor, or a flat tensor with a name of its own for a part.
  struct Stored {
    std::string name;
    TensorForm form;
    bool is_whole;
  };
  [[nodiscard]] static Stored stored(const std::string& name, const TensorForm& form,
                                     const TensorPiece& piece);
  bool operator==(const CheckpointLayout&) const = default;
};

/// Throws `invalid_argument` for contents that cannot be saved, whatever the other ranks have. State and
/// metric are checked only if `is_root`, because only rank 0's are saved.
void check_contents(const CheckpointContents& contents, std::optional<double> metric, bool is_root);

/// A text of everything that the layout depends on.
std::string describe_contents(const CheckpointContents& contents);

/// Computes the layout of all ranks' contents. Rank 0 writes tensors that all ranks have; if `sharded`, they
/// are distributed by bytes. Collective; throws agreed `mismatch` and `invalid_argument`.
CheckpointLayout agree_on_layout(const Context& context, const CheckpointContents& contents, bool sharded);

}  // namespace ddl
