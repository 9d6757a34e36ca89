#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace ddl::collectives {

/// Blocks of one size, used again and again, the last one first because caches still hold it.
class BlockPool {
 public:
  using Slab = std::shared_ptr<std::byte>;

  BlockPool(std::size_t block_bytes, std::size_t blocks_per_slab,
            std::function<Slab(std::size_t bytes)> allocate)
      : block_bytes_(block_bytes), blocks_per_slab_(blocks_per_slab), allocate_(std::move(allocate)) {}

  [[nodiscard]] std::size_t block_bytes() const noexcept { return block_bytes_; }
  [[nodiscard]] std::size_t taken() const noexcept { return taken_; }

  std::byte* take() {
    if (free_.empty()) grow();
    std::byte* block = free_.back();
    free_.pop_back();
    ++taken_;
    return block;
  }
  void give_back(std::byte* block) noexcept {
    free_.push_back(block);  // within capacity
    --taken_;
  }

 private:
  void grow() {
    slabs_.push_back(allocate_(block_bytes_ * blocks_per_slab_));
    free_.reserve(slabs_.size() * blocks_per_slab_);
    for (std::size_t i = blocks_per_slab_; i-- > 0;) free_.push_back(slabs_.back().get() + i * block_bytes_);
  }

  std::size_t block_bytes_;
  std::size_t blocks_per_slab_;
  std::function<Slab(std::size_t)> allocate_;
  std::vector<Slab> slabs_;
  std::vector<std::byte*> free_;
  std::size_t taken_ = 0;
};

}  // namespace ddl::collectives
