#pragma once

#include <cstddef>
#include <memory>

#include "ddl/checkpoint.hpp"
#include "ddl/checkpoint/checkpoint_directory.hpp"
#include "ddl/checkpoint/checkpoint_layout.hpp"
#include "ddl/shared_buffer.hpp"

namespace ddl {

/// Data goes between ranks in pieces of at most this.
inline constexpr std::size_t checkpoint_window = std::size_t{16} << 20;

/// The tensors that this rank is to write. Its memory is kept from one `take` to the next.
class CheckpointSnapshot {
 public:
  /// Files by name; their bytes are valid until the next call. Without `copy` they may be those of
  /// `contents`. Collective: a whole layout's pieces come to rank 0. `layout` must be that of `contents`.
  TensorFiles take(const Context& context, const CheckpointLayout& layout, const CheckpointContents& contents,
                   bool copy);

 private:
  std::byte* memory_of(std::size_t bytes);

  std::unique_ptr<std::byte[]> memory_;
  std::size_t size_ = 0;
  SharedBuffer<std::byte> window_;
};

}  // namespace ddl
