#pragma once

#include <cstddef>
#include <memory>

#include "ddl/checkpoint.hpp"
#include "ddl/checkpoint/checkpoint_directory.hpp"
#include "ddl/checkpoint/checkpoint_layout.hpp"
#include "ddl/shared_buffer.hpp"

namespace ddl {

/// The largest number of bytes that ranks exchange at a time.
inline constexpr std::size_t checkpoint_window = std::size_t{16} << 20;

/// Collects the tensors that this rank writes. Keeps its memory from one `take` to the next.
class CheckpointSnapshot {
 public:
  /// Returns files by name, whose bytes are valid until the next call and, without `copy`, may be those of
  /// `contents`. `layout` must be the layout of `contents`. Collective; unless the layout is sharded, rank 0
  /// receives all pieces.
  TensorFiles take(const Context& context, const CheckpointLayout& layout, const CheckpointContents& contents,
                   bool copy);

 private:
  std::byte* memory_of(std::size_t bytes);

  std::unique_ptr<std::byte[]> memory_;
  std::size_t size_ = 0;
  SharedBuffer<std::byte> window_;
};

}  // namespace ddl
