#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>

#include "nmt_example/backend/backend.hpp"

namespace nmt {

/// Hands out a step's working memory from one block that is allocated once. Without a block it only counts
/// bytes, so that the code that takes a step's tensors also measures how much they need.
class Arena {
 public:
  /// `activations`: the type of most tensors; `full`: of those that need more range or precision.
  Arena(ddl::DataType activations, ddl::DataType full) : type_(activations), full_(full) {}

  Tensor take(std::int64_t rows, std::int64_t cols) { return take(rows, cols, type_); }
  Tensor take_full(std::int64_t rows, std::int64_t cols) { return take(rows, cols, full_); }
  Tensor take(std::int64_t rows, std::int64_t cols, ddl::DataType type) {
    return {take_bytes(static_cast<std::size_t>(rows * cols) * ddl::size_of(type)), rows, cols, cols, type};
  }
  Indices take_indices(std::int64_t count) {
    return {static_cast<std::int32_t*>(take_bytes(static_cast<std::size_t>(count) * sizeof(std::int32_t))),
            count};
  }

  /// Gives back everything that was taken so far.
  void reset() noexcept { used_ = 0; }
  [[nodiscard]] std::size_t used() const noexcept { return used_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] const void* block() const noexcept { return block_.get(); }
  /// Makes room for at least so many bytes, and gives back everything.
  void reserve(Backend& backend, std::size_t bytes) {
    used_ = 0;
    if (bytes <= capacity_) return;
    block_.reset();
    block_ = backend.allocate(bytes);
    capacity_ = bytes;
  }

  /// Aligned to 64 bytes.
  void* take_bytes(std::size_t bytes) {
    constexpr std::size_t alignment = 64;
    const std::size_t begin = used_;
    used_ += (bytes + alignment - 1) / alignment * alignment;
    if (block_ == nullptr) return nullptr;
    assert(used_ <= capacity_);
    return static_cast<std::byte*>(block_.get()) + begin;
  }

 private:
  ddl::DataType type_, full_;
  std::shared_ptr<void> block_;
  std::size_t capacity_ = 0;
  std::size_t used_ = 0;
};

}  // namespace nmt
